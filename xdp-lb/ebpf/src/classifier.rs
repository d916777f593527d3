//! The program for tcx ingress and for cls_bpf on clsact.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, TC_ACT_OK, TC_ACT_SHOT, bpf_redir_neigh,
    },
    helpers::generated::{
        bpf_l4_csum_replace, bpf_redirect, bpf_redirect_neigh, bpf_skb_pull_data,
    },
    macros::classifier,
    programs::TcContext,
};
use xdp_lb_common::{
    checksum::Delta,
    datapath::{decide, refuse, send_first},
    env::{Action, Refusal},
    fragment::forward_piece,
    icmp::forward_error,
    open::open,
    packet::{Packet, Window},
    verdict::Verdict,
};

use crate::surroundings::{Program, Surroundings, opaque, through_memory};

/// Headers that must be in the linear part: Ethernet, IPv6, ICMPv6, quoted IPv6 and TCP header.
const LINEAR: u32 = 14 + 40 + 8 + 40 + 20;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// The classifier as a [`Program`].
struct Classifier;

impl Program for Classifier {
    type Packet = SkbPacket;
    const RESOLVES_NEIGHBOURS: bool = true;
}

#[inline(always)]
fn surroundings(skb: *mut __sk_buff) -> Surroundings<Classifier> {
    Surroundings {
        context: skb.cast(),
        // SAFETY: the context is valid while the program runs.
        ingress: unsafe { (*skb).ingress_ifindex },
        program: PhantomData,
    }
}

/// Answers of the functions below that are no TC action: what is to be called next.
const OPEN_FIRST: i32 = 100;
const ICMP_ERROR: i32 = 101;
const PIECE: i32 = 102;
/// Answer of [`xdp_lb_tc_open`] when the flow is open.
const OPENED: i32 = 103;

/// Everything about an established packet. (A global function, as the others here: the verifier
/// checks each by itself, so that their cases add up and do not multiply, and each has nearly all of
/// the stack.)
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_handle(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb);
    let action = match decide(&surroundings, &mut SkbPacket { skb }) {
        Ok(action) => action,
        Err(Refusal::Uncounted(verdict)) => refuse(&surroundings, verdict),
        Err(Refusal::OpenFirst) => return OPEN_FIRST,
        Err(Refusal::IcmpError) => return ICMP_ERROR,
        Err(Refusal::Piece) => return PIECE,
    };
    carry_out(action)
}

/// Opens the flow that the scratch room describes.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_open(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb);
    match open(&surroundings) {
        Ok(()) => OPENED,
        Err(verdict) => carry_out(refuse(&surroundings, verdict)),
    }
}

/// Sends the packet of the flow that was just opened.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_first(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb);
    let result = send_first(&surroundings, &mut SkbPacket { skb });
    finish(&surroundings, result)
}

/// Handles an ICMP packet.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_icmp(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb);
    let result = forward_error(&surroundings, &mut SkbPacket { skb });
    finish(&surroundings, result)
}

/// Handles a piece of a datagram, whose flow may just have been opened.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_piece(skb: *mut __sk_buff, opened: u32) -> i32 {
    let surroundings = surroundings(skb);
    let verdict = match forward_piece(&surroundings, &mut SkbPacket { skb }) {
        Ok(action) => return carry_out(action),
        Err(Refusal::OpenFirst) if opened == 0 => return OPEN_FIRST,
        Err(refusal) => refusal.or_table_full(),
    };
    carry_out(refuse(&surroundings, verdict))
}

struct SkbPacket {
    skb: *mut __sk_buff,
}

impl Packet for SkbPacket {
    #[inline(always)]
    fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>> {
        // SAFETY: the context is valid while the program runs. Read anew each time: what the compiler
        // keeps it may move as a 32-bit value, which to the verifier is no pointer any more.
        let (start, end) = unsafe {
            (
                (&raw const (*self.skb).data).read_volatile() as usize,
                (&raw const (*self.skb).data_end).read_volatile() as usize,
            )
        };
        let at = opaque(start + offset);
        if at + N > end {
            return None;
        }
        // SAFETY: `N` bytes from `at` lie before `data_end`.
        Some(unsafe { Window::new(at as *mut u8) })
    }

    #[inline(always)]
    fn holds(&self, length: usize) -> bool {
        // SAFETY: the context is valid while the program runs.
        length <= unsafe { (*self.skb).len as usize }
    }

    #[inline(always)]
    fn is_segmented_later(&self) -> bool {
        // SAFETY: the context is valid while the program runs.
        unsafe { (*self.skb).gso_size != 0 }
    }

    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        // SAFETY: the context is valid while the program runs.
        unsafe { (*self.skb).vlan_present != 0 }
    }

    #[inline(always)]
    fn launder(&self, offset: usize) -> usize {
        through_memory(offset)
    }

    #[inline(always)]
    fn update_checksum(&mut self, offset: usize, addresses: u16, ports: u16, udp: bool) -> bool {
        let Some(field) = self.window::<2>(offset) else {
            return false;
        };
        let before = field.u16::<0>();
        if udp && before == 0 {
            return true;
        }
        // Only the kernel knows whether the checksum is whole or partial: a partial one covers the
        // addresses, not yet the ports. Its call for the addresses changes the two differently, and
        // so tells which one this is; the ports of a whole one are then added here.
        let flags = if udp { BPF_F_MARK_MANGLED_0 as u64 } else { 0 };
        // SAFETY: the helper checks the offset itself.
        let result = unsafe {
            bpf_l4_csum_replace(
                self.skb,
                offset as u32,
                0,
                addresses as u64,
                flags | BPF_F_PSEUDO_HDR as u64,
            )
        };
        if result != 0 {
            return false;
        }
        if addresses == 0 || addresses == u16::MAX {
            // No difference, nothing to tell by.
            // SAFETY: as above.
            let result =
                unsafe { bpf_l4_csum_replace(self.skb, offset as u32, 0, ports as u64, flags) };
            return result == 0;
        }
        let Some(field) = self.window::<2>(offset) else {
            return false;
        };
        let whole = update(Delta::from_folded(addresses), before, udp);
        if field.u16::<0>() == whole {
            field.set_u16::<0>(update(Delta::from_folded(ports), whole, udp));
        }
        true
    }
}

#[inline(always)]
fn update(delta: Delta, checksum: u16, udp: bool) -> u16 {
    if udp {
        delta.apply_udp(checksum)
    } else {
        delta.apply(checksum)
    }
}

#[classifier]
pub(crate) fn xdp_lb_tc(context: TcContext) -> i32 {
    let skb = context.skb.skb;
    // SAFETY: the context is valid while the program runs.
    let (linear, length) = unsafe { ((*skb).data_end.wrapping_sub((*skb).data), (*skb).len) };
    let wanted = if length < LINEAR { length } else { LINEAR };
    if linear < wanted {
        // SAFETY: the helper checks the length itself; on failure the parser sees what is there.
        let _ = unsafe { bpf_skb_pull_data(skb, wanted) };
    }
    match xdp_lb_tc_handle(skb) {
        OPEN_FIRST => match xdp_lb_tc_open(skb) {
            OPENED => xdp_lb_tc_first(skb),
            action => action,
        },
        ICMP_ERROR => xdp_lb_tc_icmp(skb),
        PIECE => match xdp_lb_tc_piece(skb, 0) {
            OPEN_FIRST => match xdp_lb_tc_open(skb) {
                OPENED => xdp_lb_tc_piece(skb, 1),
                action => action,
            },
            action => action,
        },
        action => action,
    }
}

#[inline(always)]
fn finish(surroundings: &Surroundings<Classifier>, result: Result<Action, Verdict>) -> i32 {
    carry_out(match result {
        Ok(action) => action,
        Err(verdict) => refuse(surroundings, verdict),
    })
}

#[inline(always)]
fn carry_out(action: Action) -> i32 {
    match action {
        Action::Pass => TC_ACT_OK as i32,
        Action::Drop => TC_ACT_SHOT as i32,
        // SAFETY: the helper has no precondition.
        Action::Redirect { ifindex } => unsafe { bpf_redirect(ifindex, 0) as i32 },
        Action::RedirectNeighbour {
            ifindex,
            is_v4,
            next_hop,
        } => {
            // `struct bpf_redir_neigh`: family, then the next hop.
            let mut neighbour = [0u32; 5];
            if is_v4 {
                neighbour[0] = AF_INET;
                neighbour[1] = next_hop.v4_word();
            } else {
                neighbour[0] = AF_INET6;
                neighbour[1] = next_hop.0[0];
                neighbour[2] = next_hop.0[1];
                neighbour[3] = next_hop.0[2];
                neighbour[4] = next_hop.0[3];
            }
            // SAFETY: `neighbour` has the layout and size of the structure.
            unsafe {
                bpf_redirect_neigh(
                    ifindex,
                    (&raw mut neighbour).cast::<bpf_redir_neigh>(),
                    size_of_val(&neighbour) as i32,
                    0,
                ) as i32
            }
        }
    }
}
