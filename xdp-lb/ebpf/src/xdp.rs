//! The XDP program.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{xdp_action, xdp_md},
    helpers::generated::{bpf_redirect, bpf_xdp_get_buff_len},
    macros::xdp,
    programs::XdpContext,
};
use xdp_lb_common::{
    checksum::Delta,
    datapath::process,
    env::Action,
    packet::{Packet, Window},
};

use crate::surroundings::{Surroundings, opaque};

struct XdpPacket {
    context: *mut xdp_md,
}

impl Packet for XdpPacket {
    #[inline(always)]
    fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>> {
        // SAFETY: the context is valid while the program runs.
        let (start, end) =
            unsafe { ((*self.context).data as usize, (*self.context).data_end as usize) };
        let at = opaque(start + offset);
        if at + N > end {
            return None;
        }
        // SAFETY: `N` bytes from `at` lie before `data_end`.
        Some(unsafe { Window::new(at as *mut u8) })
    }

    #[inline(always)]
    fn length(&self) -> usize {
        // SAFETY: the helper has no precondition.
        unsafe { bpf_xdp_get_buff_len(self.context) as usize }
    }

    #[inline(always)]
    fn is_segmented_later(&self) -> bool {
        false
    }

    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        // A tag the hardware took off is not visible here; one in the bytes is, to the parser.
        false
    }

    #[inline(always)]
    fn update_checksum(&mut self, offset: usize, addresses: u16, ports: u16, udp: bool) -> bool {
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

#[xdp(frags)]
pub fn xdp_lb_xdp(context: XdpContext) -> u32 {
    let raw = context.ctx;
    // SAFETY: the context is valid while the program runs.
    let ingress = unsafe { (*raw).ingress_ifindex };
    let surroundings = Surroundings {
        context: raw.cast(),
        ingress,
        resolves_neighbours: false,
        packet: PhantomData,
    };
    match process(&surroundings, &mut XdpPacket { context: raw }) {
        Action::Pass => xdp_action::XDP_PASS,
        Action::Drop => xdp_action::XDP_DROP,
        Action::Redirect { ifindex } if ifindex == ingress => xdp_action::XDP_TX,
        // SAFETY: the helper has no precondition.
        Action::Redirect { ifindex } => unsafe { bpf_redirect(ifindex, 0) as u32 },
        // Not asked for: `resolves_neighbours` is false.
        Action::RedirectNeighbour { .. } => xdp_action::XDP_PASS,
    }
}
