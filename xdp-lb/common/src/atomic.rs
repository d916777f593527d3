//! Atomic read-modify-write on shared map values.
//!
//! The BPF target offers no such methods on `core`'s atomics (it says it has no compare-and-swap,
//! true before Linux 5.12), so there the compiler's intrinsics are used: sequentially consistent,
//! since LLVM 22 makes a relaxed one an instruction that does not return the old value.

#![allow(unsafe_code, reason = "raw pointers into map values")]

#[cfg(target_arch = "bpf")]
mod imp {
    use core::intrinsics::{
        AtomicOrdering::SeqCst, atomic_cxchg, atomic_or, atomic_xadd, atomic_xchg,
    };

    #[inline(always)]
    pub(crate) unsafe fn add64(at: *mut u64, by: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { atomic_xadd::<u64, u64, { SeqCst }>(at, by) }
    }

    #[inline(always)]
    pub(crate) unsafe fn swap32(at: *mut u32, new: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { atomic_xchg::<u32, { SeqCst }>(at, new) }
    }

    #[inline(always)]
    pub(crate) unsafe fn or32(at: *mut u32, bits: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { atomic_or::<u32, u32, { SeqCst }>(at, bits) }
    }

    #[inline(always)]
    pub(crate) unsafe fn replace32(at: *mut u32, old: u32, new: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { atomic_cxchg::<u32, { SeqCst }, { SeqCst }>(at, old, new).1 }
    }

    #[inline(always)]
    pub(crate) unsafe fn load32(at: *mut u32) -> u32 {
        // SAFETY: the caller's promise. An aligned word is read at once.
        unsafe { at.read_volatile() }
    }

    #[inline(always)]
    pub(crate) unsafe fn store32(at: *mut u32, value: u32) {
        // SAFETY: the caller's promise. An aligned word is written at once.
        unsafe { at.write_volatile(value) }
    }

    #[inline(always)]
    pub(crate) unsafe fn load64(at: *mut u64) -> u64 {
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    }

    #[inline(always)]
    pub(crate) unsafe fn store64(at: *mut u64, value: u64) {
        // SAFETY: as above.
        unsafe { at.write_volatile(value) }
    }
}

#[cfg(not(target_arch = "bpf"))]
mod imp {
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

    pub(crate) unsafe fn add64(at: *mut u64, by: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at) }.fetch_add(by, Relaxed)
    }

    pub(crate) unsafe fn swap32(at: *mut u32, new: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at) }.swap(new, Relaxed)
    }

    pub(crate) unsafe fn or32(at: *mut u32, bits: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at) }.fetch_or(bits, Relaxed)
    }

    pub(crate) unsafe fn replace32(at: *mut u32, old: u32, new: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at) }
            .compare_exchange(old, new, Relaxed, Relaxed)
            .is_ok()
    }

    pub(crate) unsafe fn load32(at: *mut u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at) }.load(Relaxed)
    }

    pub(crate) unsafe fn store32(at: *mut u32, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(at) }.store(value, Relaxed);
    }

    pub(crate) unsafe fn load64(at: *mut u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at) }.load(Relaxed)
    }

    pub(crate) unsafe fn store64(at: *mut u64, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at) }.store(value, Relaxed);
    }
}

// All of them: `at` must be valid and aligned, and accessed atomically by everyone else.
pub(crate) use imp::{add64, load32, load64, or32, replace32, store32, store64, swap32};
