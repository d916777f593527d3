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
    datapath::{decide, refuse},
    env::{Action, Refusal},
    icmp::forward_error,
    packet::{Packet, Window},
    parse::parse,
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
fn surroundings(skb: *mut __sk_buff, fresh: bool) -> Surroundings<Classifier> {
    Surroundings {
        context: skb.cast(),
        // SAFETY: the context is valid while the program runs.
        ingress: unsafe { (*skb).ingress_ifindex },
        fresh,
        program: PhantomData,
    }
}

/// Answers of [`xdp_lb_tc_handle`] that are no TC action.
const OPEN_FIRST: i32 = 100;
const ICMP_ERROR: i32 = 101;
/// Answer of [`xdp_lb_tc_open`] when the flow is open.
const OPENED: i32 = 102;

/// Everything but opening flows and ICMP errors. (A global function, as the next two: the verifier
/// checks each by itself, so that their cases add up and do not multiply, and their stacks, too.)
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_handle(skb: *mut __sk_buff, fresh: u32) -> i32 {
    let surroundings = surroundings(skb, fresh != 0);
    let action = match decide(&surroundings, &mut SkbPacket { skb }) {
        Ok(action) => action,
        Err(Refusal::Uncounted(verdict)) => refuse(&surroundings, verdict),
        Err(Refusal::OpenFirst) if fresh == 0 => return OPEN_FIRST,
        // The table was so full that it dropped the new flow at once.
        Err(Refusal::OpenFirst) => refuse(&surroundings, Verdict::DropTableFull),
        Err(Refusal::IcmpError) => return ICMP_ERROR,
    };
    carry_out(action)
}

/// Opens the flow that the scratch room describes.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_open(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb, false);
    match surroundings.open_later() {
        Ok(()) => OPENED,
        Err(verdict) => carry_out(refuse(&surroundings, verdict)),
    }
}

/// Handles an ICMP packet.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_tc_icmp(skb: *mut __sk_buff) -> i32 {
    let surroundings = surroundings(skb, false);
    let mut packet = SkbPacket { skb };
    let result = match parse(&packet) {
        Ok(headers) => forward_error(&surroundings, &mut packet, &headers),
        Err(verdict) => Err(verdict),
    };
    carry_out(match result {
        Ok(action) => action,
        Err(verdict) => refuse(&surroundings, verdict),
    })
}

struct SkbPacket {
    skb: *mut __sk_buff,
}

impl Packet for SkbPacket {
    #[inline(always)]
    fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>> {
        // SAFETY: the context is valid while the program runs.
        let (start, end) = unsafe { ((*self.skb).data as usize, (*self.skb).data_end as usize) };
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
        // The helper knows what a partial checksum covers: the addresses, not yet the ports.
        let flags = if udp { BPF_F_MARK_MANGLED_0 as u64 } else { 0 };
        // SAFETY: the helper checks the offset itself.
        let (first, second) = unsafe {
            (
                bpf_l4_csum_replace(
                    self.skb,
                    offset as u32,
                    0,
                    addresses as u64,
                    flags | BPF_F_PSEUDO_HDR as u64,
                ),
                bpf_l4_csum_replace(self.skb, offset as u32, 0, ports as u64, flags),
            )
        };
        first == 0 && second == 0
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
    match xdp_lb_tc_handle(skb, 0) {
        OPEN_FIRST => match xdp_lb_tc_open(skb) {
            OPENED => xdp_lb_tc_handle(skb, 1),
            action => action,
        },
        ICMP_ERROR => xdp_lb_tc_icmp(skb),
        action => action,
    }
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
