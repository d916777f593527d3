//! The program for tcx ingress and for cls_bpf on clsact.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, TC_ACT_OK, TC_ACT_SHOT,
        bpf_redir_neigh,
    },
    helpers::generated::{
        bpf_l4_csum_replace, bpf_redirect, bpf_redirect_neigh, bpf_skb_pull_data,
    },
    macros::classifier,
    programs::TcContext,
};
use xdp_lb_common::{
    datapath::process,
    env::Action,
    packet::{Packet, Window},
};

use crate::surroundings::{Surroundings, opaque};

/// Headers that must be in the linear part: Ethernet, IPv6, ICMPv6, quoted IPv6 and TCP header.
const LINEAR: u32 = 14 + 40 + 8 + 40 + 20;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

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
    fn length(&self) -> usize {
        // SAFETY: the context is valid while the program runs.
        unsafe { (*self.skb).len as usize }
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
pub fn xdp_lb_tc(context: TcContext) -> i32 {
    let skb = context.skb.skb;
    // SAFETY: the context is valid while the program runs.
    let (linear, length, ingress) = unsafe {
        (
            (*skb).data_end.wrapping_sub((*skb).data),
            (*skb).len,
            (*skb).ingress_ifindex,
        )
    };
    let wanted = if length < LINEAR { length } else { LINEAR };
    if linear < wanted {
        // SAFETY: the helper checks the length itself; on failure the parser sees what is there.
        let _ = unsafe { bpf_skb_pull_data(skb, wanted) };
    }
    let surroundings = Surroundings {
        context: skb.cast(),
        ingress,
        resolves_neighbours: true,
        packet: PhantomData,
    };
    match process(&surroundings, &mut SkbPacket { skb }) {
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
