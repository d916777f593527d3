//! Byte buffers that cost nothing while a connection is idle.
//!
//! A buffer takes its memory from a free list of its thread when bytes arrive and gives it back
//! when it is dropped or released. Memory is always initialised, so no `unsafe` is needed to read
//! into it.

use std::cell::RefCell;

/// Sizes that are kept for reuse, with the number kept of each on a thread.
const CLASSES: [(usize, usize); 3] = [(SMALL, 256), (LARGE, 64), (HUGE, 16)];
/// A usual request.
pub(crate) const SMALL: usize = 2 << 10;
/// The longest request head, a usual response.
pub(crate) const LARGE: usize = 16 << 10;
/// The longest response head, bulk transfer.
pub(crate) const HUGE: usize = 64 << 10;

thread_local! {
    static FREE: RefCell<[Vec<Box<[u8]>>; CLASSES.len()]> = const { RefCell::new([const { Vec::new() }; CLASSES.len()]) };
}

fn class_of(size: usize) -> Option<usize> {
    CLASSES.iter().position(|(class, _)| *class == size)
}

fn take_memory(size: usize) -> Box<[u8]> {
    class_of(size)
        .and_then(|class| FREE.with_borrow_mut(|free| free[class].pop()))
        .unwrap_or_else(|| vec![0; size].into_boxed_slice())
}

fn give_memory(memory: Box<[u8]>) {
    let Some(class) = class_of(memory.len()) else {
        return;
    };
    // A buffer dropped while its thread ends finds no list: then the memory is simply freed.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free[class].len() < CLASSES[class].1 {
            free[class].push(memory);
        }
    });
}

/// Bytes in a window of a block of memory.
#[derive(Default)]
pub(crate) struct Buffer {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether there is no space behind the bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.memory.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Keeps only the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Makes the whole capacity at least `size`, keeping the bytes.
    pub(crate) fn reserve_total(&mut self, size: usize) {
        if self.memory.len() >= size {
            return;
        }
        let mut memory = take_memory(size);
        memory[..self.end - self.start].copy_from_slice(&self.memory[self.start..self.end]);
        self.end -= self.start;
        self.start = 0;
        give_memory(std::mem::replace(&mut self.memory, memory));
    }

    /// Free space behind the bytes, after moving them to the front when there is none.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.memory[self.end..]
    }

    /// Says that `n` bytes were written into [`Buffer::space`].
    pub(crate) fn filled_by(&mut self, n: usize) {
        self.end = (self.end + n).min(self.memory.len());
    }

    /// Appends, growing as needed. The caller bounds what it appends.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if self.memory.len() - self.end < bytes.len() {
            let want = self.len() + bytes.len();
            let size = CLASSES
                .iter()
                .map(|(size, _)| *size)
                .find(|size| *size >= want)
                .unwrap_or_else(|| want.next_power_of_two());
            if size > self.memory.len() {
                self.reserve_total(size);
            } else {
                self.memory.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
        }
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Drops the bytes, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Gives the memory back. Only for an empty buffer; with bytes in it nothing happens.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            self.clear();
            give_memory(std::mem::take(&mut self.memory));
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give_memory(std::mem::take(&mut self.memory));
    }
}

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_growth_and_consumption() {
        let mut buffer = Buffer::default();
        let text: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        for part in text.chunks(1000) {
            buffer.extend(part);
        }
        assert_eq!(buffer.filled(), &text[..]);
        buffer.consume(69_000);
        buffer.extend(b"tail");
        assert_eq!(&buffer.filled()[..1000], &text[69_000..]);
        assert_eq!(&buffer.filled()[1000..], b"tail");
    }

    #[test]
    fn released_memory_is_reused_and_holds_no_capacity_when_idle() {
        let mut buffer = Buffer::default();
        buffer.reserve_total(SMALL);
        buffer.space()[0] = 7;
        buffer.filled_by(1);
        buffer.release();
        assert_eq!(buffer.capacity(), SMALL, "a filled buffer is not released");
        buffer.consume(1);
        buffer.release();
        assert_eq!(buffer.capacity(), 0);
    }
}
