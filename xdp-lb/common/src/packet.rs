//! Access to packet bytes: checked once per header, then by constant offsets.
//!
//! The verifier accepts a read only below a bound it has seen compared with `data_end`. A [`Window`]
//! is the proof of one such comparison; its accessors take offsets that the compiler checks.

#![allow(
    unsafe_code,
    reason = "windows are raw pointers so that the verifier can follow them"
)]

use core::marker::PhantomData;

/// A packet that begins with its Ethernet header.
pub trait Packet {
    /// `N` readable and writable bytes at `offset`, if the packet has them.
    fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>>;
    /// Whether the whole packet, also what is not at hand, has so many bytes.
    fn holds(&self, length: usize) -> bool;
    /// Whether the stack will segment this packet later, so that its size says nothing.
    fn is_segmented_later(&self) -> bool;
    /// Whether a VLAN tag is kept outside the bytes.
    fn has_vlan_tag(&self) -> bool;
    /// The same offset, at most [`crate::limits::MAX_L4_OFFSET`], as if just read from memory.
    ///
    /// The verifier follows every value an offset may have had, through everything that comes after;
    /// forgetting how it came about keeps the number of its cases small.
    fn launder(&self, offset: usize) -> usize {
        offset
    }
    /// Changes the TCP or UDP checksum at `offset` by folded differences. Invalidates windows.
    fn update_checksum(&mut self, offset: usize, addresses: u16, ports: u16, udp: bool) -> bool;
}

/// `N` bytes of a packet.
#[derive(Clone, Copy)]
pub struct Window<'a, const N: usize> {
    start: *mut u8,
    packet: PhantomData<&'a [u8; N]>,
}

macro_rules! accessors {
    ($read:ident, $write:ident, $type:ty) => {
        #[inline(always)]
        #[must_use]
        pub fn $read<const AT: usize>(self) -> $type {
            const { assert!(AT + size_of::<$type>() <= N) };
            // SAFETY: inside the window, see the assertion and `new`. On the BPF target all loads may
            // be unaligned; a byte-wise read_unaligned would cost there.
            unsafe {
                let at = self.start.add(AT).cast::<$type>();
                if cfg!(target_arch = "bpf") {
                    *at
                } else {
                    at.read_unaligned()
                }
            }
        }

        #[inline(always)]
        pub fn $write<const AT: usize>(self, value: $type) {
            const { assert!(AT + size_of::<$type>() <= N) };
            // SAFETY: as for reading.
            unsafe {
                let at = self.start.add(AT).cast::<$type>();
                if cfg!(target_arch = "bpf") {
                    *at = value;
                } else {
                    at.write_unaligned(value);
                }
            }
        }
    };
}

impl<const N: usize> Window<'_, N> {
    /// # Safety
    ///
    /// `start` must point to `N` bytes that stay valid for reading and writing, by this thread only,
    /// as long as the window lives.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn new(start: *mut u8) -> Self {
        Self {
            start,
            packet: PhantomData,
        }
    }

    accessors!(u8, set_u8, u8);
    accessors!(u16, set_u16, u16);
    accessors!(u32, set_u32, u32);
}

#[cfg(any(test, feature = "user"))]
mod buffer {
    use super::{Packet, Window};
    use crate::checksum::Delta;

    /// A packet in user space memory.
    #[derive(Debug)]
    pub struct BufferPacket {
        bytes: Vec<u8>,
        start: *mut u8,
    }

    impl BufferPacket {
        /// A packet with these bytes.
        #[must_use]
        pub fn new(bytes: &[u8]) -> Self {
            let mut bytes = bytes.to_vec();
            let start = bytes.as_mut_ptr();
            Self { bytes, start }
        }

        /// The bytes as they are now.
        #[must_use]
        pub fn into_bytes(self) -> Vec<u8> {
            self.bytes
        }
    }

    impl Packet for BufferPacket {
        fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>> {
            if offset.checked_add(N)? > self.bytes.len() {
                return None;
            }
            // SAFETY: `N` bytes from `offset` lie in the buffer, which never grows, and which is
            // read by other means only when the packet, and so every window, is gone.
            Some(unsafe { Window::new(self.start.add(offset)) })
        }

        fn holds(&self, length: usize) -> bool {
            length <= self.bytes.len()
        }

        fn is_segmented_later(&self) -> bool {
            false
        }

        fn has_vlan_tag(&self) -> bool {
            false
        }

        fn update_checksum(
            &mut self,
            offset: usize,
            addresses: u16,
            ports: u16,
            udp: bool,
        ) -> bool {
            let Some(field) = self.window::<2>(offset) else {
                return false;
            };
            let delta = Delta::from_folded(addresses).plus(Delta::from_folded(ports));
            let old = field.u16::<0>();
            field.set_u16::<0>(if udp {
                delta.apply_udp(old)
            } else {
                delta.apply(old)
            });
            true
        }
    }
}

#[cfg(any(test, feature = "user"))]
pub use buffer::BufferPacket;
