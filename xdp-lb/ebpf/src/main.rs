//! The XDP and TC programs: bounds checks, map calls and verdicts around `xdp_lb_common::datapath`.
//!
//! Both run the same code. The classifier can hand a packet to the kernel's neighbour layer; XDP
//! leaves such packets, untouched, to the classifier that is always attached behind it.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod classifier;
mod maps;
mod surroundings;
mod xdp;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
