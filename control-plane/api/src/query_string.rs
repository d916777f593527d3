//! Query strings: `a=1&b=x%20y` to pairs and back.

/// Pairs in order. Bytes that are no UTF-8 become the replacement character.
pub(crate) fn parse(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        })
        .collect()
}

pub(crate) fn build<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        encode(name, &mut text);
        text.push('=');
        encode(value, &mut text);
    }
    text
}

/// Percent escapes, and `+` for a space where it stands for one.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' if plus_is_space => bytes.push(b' '),
            b'%' => {
                let mut ahead = rest.clone();
                let digits = (ahead.next().and_then(hex), ahead.next().and_then(hex));
                match digits {
                    (Some(high), Some(low)) => {
                        bytes.push(high << 4 | low);
                        rest = ahead;
                    }
                    _ => bytes.push(byte),
                }
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn encode(text: &str, out: &mut String) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b':' | b',') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(DIGITS.get(usize::from(digit)).copied().unwrap_or('0'));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_survive_the_round_trip() {
        let pairs = [
            ("name", "a b&c=d"),
            ("tags", "x,y"),
            ("", "é%"),
            ("marker", ""),
        ];
        let text = build(pairs);
        let parsed = parse(&text);
        let again: Vec<(&str, &str)> = parsed
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(again, pairs);
    }

    #[test]
    fn broken_escapes_are_taken_as_they_are() {
        for (text, expected) in [
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("a+b", "a b"),
            ("%41", "A"),
        ] {
            assert_eq!(decode(text, true), expected, "{text}");
        }
        assert_eq!(decode("%ff", true), "\u{fffd}");
    }
}
