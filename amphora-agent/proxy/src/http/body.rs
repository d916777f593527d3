//! Where a message body ends: a length, chunks, or the end of the connection (RFC 9112 section 6).
//!
//! The chunk decoder is strict, because chunks are passed on as they came: what two parsers could
//! read differently is an error. Sizes are 1 to 16 hex digits, lines end in CR LF, extensions and
//! trailers are bounded, trailers carry no field that frames or routes a message.

use crate::buffer::Buffer;

/// The framing breaks the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    Chunked {
        decoder: ChunkDecoder,
        /// Pass on the data without the chunks (to an HTTP/1.0 client).
        strip: bool,
    },
    UntilClose {
        ended: bool,
    },
}

impl Framing {
    pub(crate) const NONE: Framing = Framing::Length(0);

    pub(crate) fn chunked() -> Self {
        Framing::Chunked {
            decoder: ChunkDecoder::default(),
            strip: false,
        }
    }

    pub(crate) fn until_close() -> Self {
        Framing::UntilClose { ended: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        match self {
            Framing::Length(left) => *left == 0,
            Framing::Chunked { decoder, .. } => decoder.is_done(),
            Framing::UntilClose { ended } => *ended,
        }
    }

    /// The connection ended. Whether the message is complete by that.
    pub(crate) fn end(&mut self) -> bool {
        if let Framing::UntilClose { ended } = self {
            *ended = true;
        }
        self.is_done()
    }

    /// Reads the framing of the bytes in `buffer` and returns how many at its front are to be
    /// passed on. Bytes behind the end of the message stay behind them.
    pub(crate) fn advance(&mut self, buffer: &mut Buffer) -> Result<usize, Malformed> {
        match self {
            Framing::Length(left) => {
                let take = usize::try_from(*left).map_or(buffer.len(), |n| n.min(buffer.len()));
                *left -= take as u64;
                Ok(take)
            }
            Framing::UntilClose { .. } => Ok(buffer.len()),
            Framing::Chunked {
                decoder,
                strip: false,
            } => {
                let bytes = buffer.filled();
                let mut read = 0;
                while read < bytes.len() && !decoder.is_done() {
                    read += decoder.next(&bytes[read..])?.len;
                }
                Ok(read)
            }
            Framing::Chunked {
                decoder,
                strip: true,
            } => {
                let bytes = buffer.filled_mut();
                let (mut read, mut kept) = (0, 0);
                while read < bytes.len() && !decoder.is_done() {
                    let step = decoder.next(&bytes[read..])?;
                    if step.is_data {
                        bytes.copy_within(read..read + step.len, kept);
                        kept += step.len;
                    }
                    read += step.len;
                }
                let len = bytes.len();
                bytes.copy_within(read..len, kept);
                buffer.truncate(len - (read - kept));
                Ok(kept)
            }
        }
    }
}

/// Digits of the longest chunk size: 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;
/// Bytes of all chunk extensions of one body.
const MAX_EXTENSIONS: u32 = 8 << 10;
/// Bytes of the trailer section.
const MAX_TRAILERS: u32 = 8 << 10;
/// Long enough for the names that are refused in trailers.
const NAME_KEPT: usize = 20;

const REFUSED_TRAILERS: [&[u8]; 4] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"connection",
];

/// Reads chunk framing in pieces of any size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    extensions: u32,
    trailers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: u8 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName { name: [u8; NAME_KEPT], len: u8 },
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// A run of bytes at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Bytes in the run, at least 1.
    pub(crate) len: usize,
    /// Whether they are body data, else framing.
    pub(crate) is_data: bool,
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        ChunkDecoder {
            state: ChunkState::Size {
                value: 0,
                digits: 0,
            },
            extensions: 0,
            trailers: 0,
        }
    }
}

impl ChunkDecoder {
    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Takes the next run of `bytes`, which must not be empty, of a body that is not done.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Run, Malformed> {
        if let ChunkState::Data { left } = &mut self.state {
            let len = usize::try_from(*left).map_or(bytes.len(), |n| n.min(bytes.len()));
            *left -= len as u64;
            if *left == 0 {
                self.state = ChunkState::DataCr;
            }
            return Ok(Run { len, is_data: true });
        }
        let mut len = 0;
        for &byte in bytes {
            self.state = self.step(byte)?;
            len += 1;
            if matches!(self.state, ChunkState::Data { .. } | ChunkState::Done) {
                break;
            }
        }
        Ok(Run {
            len,
            is_data: false,
        })
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Malformed> {
        use ChunkState as S;
        Ok(match (self.state, byte) {
            (S::Size { value, digits }, byte) if byte.is_ascii_hexdigit() => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(Malformed);
                }
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                S::Size {
                    value: value << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (S::Size { digits: 0, .. }, _) => return Err(Malformed),
            (S::Size { value, .. }, b'\r') => S::SizeLf { size: value },
            (S::Size { value, .. }, b';') => {
                self.count_extension()?;
                S::Extension { size: value }
            }
            (S::Size { .. }, _) => return Err(Malformed),

            (S::Extension { size }, b'\r') => S::SizeLf { size },
            (S::Extension { size }, byte) if is_field_text(byte) => {
                self.count_extension()?;
                S::Extension { size }
            }
            (S::Extension { .. }, _) => return Err(Malformed),

            (S::SizeLf { size: 0 }, b'\n') => S::TrailerStart,
            (S::SizeLf { size }, b'\n') => S::Data { left: size },
            (S::SizeLf { .. }, _) => return Err(Malformed),

            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => S::Size {
                value: 0,
                digits: 0,
            },
            (S::DataCr | S::DataLf, _) => return Err(Malformed),

            (S::TrailerStart, b'\r') => S::EndLf,
            (S::TrailerStart, byte) if is_token(byte) => {
                self.count_trailer()?;
                let mut name = [0; NAME_KEPT];
                name[0] = byte.to_ascii_lowercase();
                S::TrailerName { name, len: 1 }
            }
            (S::TrailerStart, _) => return Err(Malformed),

            (S::TrailerName { name, len }, b':') => {
                self.count_trailer()?;
                let name = name.get(..usize::from(len));
                if name.is_some_and(|name| REFUSED_TRAILERS.contains(&name)) {
                    return Err(Malformed);
                }
                S::TrailerValue
            }
            (S::TrailerName { mut name, len }, byte) if is_token(byte) => {
                self.count_trailer()?;
                if let Some(kept) = name.get_mut(usize::from(len)) {
                    *kept = byte.to_ascii_lowercase();
                }
                S::TrailerName {
                    name,
                    // Past the end `get(..len)` finds nothing, and no refused name is so long.
                    len: len.saturating_add(1),
                }
            }
            (S::TrailerName { .. }, _) => return Err(Malformed),

            (S::TrailerValue, b'\r') => S::TrailerLf,
            (S::TrailerValue, byte) if is_field_text(byte) => {
                self.count_trailer()?;
                S::TrailerValue
            }
            (S::TrailerValue, _) => return Err(Malformed),
            (S::TrailerLf, b'\n') => S::TrailerStart,
            (S::TrailerLf, _) => return Err(Malformed),

            (S::EndLf, b'\n') => S::Done,
            (S::EndLf, _) => return Err(Malformed),

            (S::Data { .. } | S::Done, _) => return Err(Malformed),
        })
    }

    fn count_extension(&mut self) -> Result<(), Malformed> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS {
            return Err(Malformed);
        }
        Ok(())
    }

    fn count_trailer(&mut self) -> Result<(), Malformed> {
        self.trailers += 1;
        if self.trailers > MAX_TRAILERS {
            return Err(Malformed);
        }
        Ok(())
    }
}

/// `tchar` of RFC 9110 section 5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Bytes of a field value: visible, blank or outside ASCII; no other control.
fn is_field_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `wire` in pieces of `piece` bytes: the data, and how many bytes the body took.
    fn decode(wire: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let mut decoder = ChunkDecoder::default();
        let (mut data, mut used) = (Vec::new(), 0);
        for part in wire.chunks(piece) {
            let mut at = 0;
            while at < part.len() && !decoder.is_done() {
                let run = decoder.next(&part[at..])?;
                if run.is_data {
                    data.extend_from_slice(&part[at..at + run.len]);
                }
                at += run.len;
                used += run.len;
            }
        }
        Ok((data, used, decoder.is_done()))
    }

    #[test]
    fn well_formed_bodies_are_read_whole() {
        let table: [(&[u8], &[u8]); 7] = [
            (b"0\r\n\r\n", b""),
            (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
            (b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", b"hello world"),
            (b"a;x=1;y=\"z\"\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
            (
                b"000000000000000A\r\n0123456789\r\n0\r\n\r\n",
                b"0123456789",
            ),
            (
                b"1\r\nx\r\n0\r\nA: b\r\nExpires-Long-Trailer-Name: c\r\n\r\n",
                b"x",
            ),
            (b"2\r\n\r\n\r\n00\r\n\r\n", b"\r\n"),
        ];
        for (wire, data) in table {
            for piece in [1, 2, 3, 1000] {
                let mut with_rest = wire.to_vec();
                with_rest.extend_from_slice(b"GET / HTTP/1.1\r\n");
                let (got, used, done) = decode(&with_rest, piece).unwrap();
                assert_eq!(got, data, "{}", wire.escape_ascii());
                assert_eq!(used, wire.len(), "{}", wire.escape_ascii());
                assert!(done);
            }
        }
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        let table: [&[u8]; 26] = [
            b"\r\n",
            b" 5\r\nhello\r\n",
            b"5 \r\nhello\r\n",
            b"5\t;x\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\rhello\r\n",
            b"5\r\rhello",
            b"5\r\nhelloX\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello\r0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n",
            b"5;a\x00b\r\nhello\r\n",
            b"10000000000000000\r\n",
            b"00000000000000005\r\nhello\r\n",
            b"g\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA\r\n\r\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\n\n",
            b"0\r\nContent-Length: 5\r\n\r\n",
            b"0\r\nTRANSFER-ENCODING: chunked\r\n\r\n",
            b"0\r\nhost:x\r\n\r\n",
        ];
        for wire in table {
            for piece in [1, 1000] {
                assert_eq!(
                    decode(wire, piece).err(),
                    Some(Malformed),
                    "{}",
                    wire.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let mut extension = b"1;".to_vec();
        extension.resize(20_000, b'x');
        assert_eq!(decode(&extension, 1000).err(), Some(Malformed));
        let mut many = Vec::new();
        for _ in 0..10_000 {
            many.extend_from_slice(b"1;x\r\nx\r\n");
        }
        assert_eq!(decode(&many, 1000).err(), Some(Malformed));
        let mut trailer = b"0\r\nA: ".to_vec();
        trailer.resize(20_000, b'x');
        assert_eq!(decode(&trailer, 1000).err(), Some(Malformed));
        let mut name = b"0\r\n".to_vec();
        name.resize(20_000, b'n');
        assert_eq!(decode(&name, 1000).err(), Some(Malformed));
    }

    #[test]
    fn stripping_keeps_data_and_what_follows_the_body() {
        let mut buffer = Buffer::default();
        buffer.extend(b"3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\nREST");
        let mut framing = Framing::Chunked {
            decoder: ChunkDecoder::default(),
            strip: true,
        };
        assert_eq!(framing.advance(&mut buffer), Ok(5));
        assert!(framing.is_done());
        assert_eq!(buffer.filled(), b"abcdeREST");
    }

    #[test]
    fn a_length_takes_no_byte_of_the_next_message() {
        let mut buffer = Buffer::default();
        buffer.extend(b"helloGET");
        let mut framing = Framing::Length(5);
        assert_eq!(framing.advance(&mut buffer), Ok(5));
        assert!(framing.is_done());
        assert!(!Framing::Length(1).end());
        assert!(Framing::until_close().end());
    }

    proptest! {
        #[test]
        fn any_data_in_any_chunks_and_pieces_comes_out_unchanged(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..100), 0..10),
            piece in 1usize..50,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let (data, used, done) = decode(&wire, piece).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(used, wire.len());
            prop_assert!(done);
        }

        #[test]
        fn pieces_do_not_change_the_verdict(wire in prop::collection::vec(
            prop::sample::select(b"0123aA;\r\n: xT\x00\xff".to_vec()), 0..60), piece in 1usize..7) {
            prop_assert_eq!(decode(&wire, piece), decode(&wire, 1000));
        }
    }
}
