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
    datapath::{decide, refuse, send_first},
    env::{Action, Refusal},
    fragment::forward_piece,
    icmp::forward_error,
    open::open,
    packet::{Packet, Window},
    verdict::Verdict,
};

use crate::surroundings::{Program, Surroundings, opaque, through_memory, ticks_ns};

/// The XDP program as a [`Program`].
struct Xdp;

impl Program for Xdp {
    type Packet = XdpPacket;
    const RESOLVES_NEIGHBOURS: bool = false;
}

#[inline(always)]
fn surroundings(context: *mut xdp_md) -> Surroundings<Xdp> {
    Surroundings {
        context: context.cast(),
        // SAFETY: the context is valid while the program runs.
        ingress: unsafe { (*context).ingress_ifindex },
        program: PhantomData,
    }
}

/// Answers of the functions below that are no XDP action: what is to be called next.
const OPEN_FIRST: u32 = 100;
const ICMP_ERROR: u32 = 101;
const PIECE: u32 = 102;
/// Answer of [`xdp_lb_xdp_open`] when the flow is open.
const OPENED: u32 = 103;

/// As the classifier's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_xdp_handle(context: *mut xdp_md) -> u32 {
    let surroundings = surroundings(context);
    let action = match decide(&surroundings, &mut XdpPacket { context }) {
        Ok(action) => action,
        Err(Refusal::Uncounted(verdict)) => refuse(&surroundings, verdict),
        Err(Refusal::OpenFirst) => return OPEN_FIRST,
        Err(Refusal::IcmpError) => return ICMP_ERROR,
        Err(Refusal::Piece) => return PIECE,
    };
    carry_out(action, surroundings.ingress)
}

/// As the classifier's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_xdp_open(context: *mut xdp_md) -> u32 {
    let surroundings = surroundings(context);
    match open(&surroundings) {
        Ok(()) => OPENED,
        Err(verdict) => carry_out(refuse(&surroundings, verdict), surroundings.ingress),
    }
}

/// As the classifier's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_xdp_first(context: *mut xdp_md) -> u32 {
    let surroundings = surroundings(context);
    let result = send_first(&surroundings, &mut XdpPacket { context });
    finish(&surroundings, result)
}

/// As the classifier's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_xdp_icmp(context: *mut xdp_md) -> u32 {
    let surroundings = surroundings(context);
    let result = forward_error(&surroundings, &mut XdpPacket { context });
    finish(&surroundings, result)
}

/// As the classifier's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn xdp_lb_xdp_piece(context: *mut xdp_md, opened: u32) -> u32 {
    let surroundings = surroundings(context);
    let verdict = match forward_piece(&surroundings, &mut XdpPacket { context }) {
        Ok(action) => return carry_out(action, surroundings.ingress),
        Err(Refusal::OpenFirst) if opened == 0 => return OPEN_FIRST,
        Err(refusal) => refusal.or_table_full(),
    };
    carry_out(refuse(&surroundings, verdict), surroundings.ingress)
}

struct XdpPacket {
    context: *mut xdp_md,
}

impl Packet for XdpPacket {
    #[inline(always)]
    fn window<const N: usize>(&self, offset: usize) -> Option<Window<'_, N>> {
        // SAFETY: the context is valid while the program runs. As in the classifier.
        let (start, end) = unsafe {
            (
                (&raw const (*self.context).data).read_volatile() as usize,
                (&raw const (*self.context).data_end).read_volatile() as usize,
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
        let at_hand = unsafe { (*self.context).data_end - (*self.context).data } as usize;
        // SAFETY: the helper has no precondition. It is asked only about packets in several buffers.
        length <= at_hand || length <= unsafe { bpf_xdp_get_buff_len(self.context) as usize }
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
    fn launder(&self, offset: usize) -> usize {
        through_memory(offset)
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
pub(crate) fn xdp_lb_xdp(context: XdpContext) -> u32 {
    let context = context.ctx;
    match xdp_lb_xdp_handle(context) {
        OPEN_FIRST => match xdp_lb_xdp_open(context) {
            OPENED => xdp_lb_xdp_first(context),
            action => action,
        },
        ICMP_ERROR => xdp_lb_xdp_icmp(context),
        PIECE => match xdp_lb_xdp_piece(context, 0) {
            OPEN_FIRST => match xdp_lb_xdp_open(context) {
                OPENED => xdp_lb_xdp_piece(context, 1),
                action => action,
            },
            action => action,
        },
        action => action,
    }
}

/// Writes the programs' time to the first eight bytes of the packet: user space runs this to know
/// how old a flow is, and attaches it nowhere.
#[xdp]
pub(crate) fn xdp_lb_clock(context: XdpContext) -> u32 {
    let packet = XdpPacket {
        context: context.ctx,
    };
    let Some(place) = packet.window::<8>(0) else {
        return xdp_action::XDP_ABORTED;
    };
    let now = ticks_ns();
    place.set_u32::<0>(now as u32);
    place.set_u32::<4>((now >> 32) as u32);
    xdp_action::XDP_PASS
}

#[inline(always)]
fn finish(surroundings: &Surroundings<Xdp>, result: Result<Action, Verdict>) -> u32 {
    let action = match result {
        Ok(action) => action,
        Err(verdict) => refuse(surroundings, verdict),
    };
    carry_out(action, surroundings.ingress)
}

#[inline(always)]
fn carry_out(action: Action, ingress: u32) -> u32 {
    match action {
        Action::Pass => xdp_action::XDP_PASS,
        Action::Drop => xdp_action::XDP_DROP,
        Action::Redirect { ifindex } if ifindex == ingress => xdp_action::XDP_TX,
        // SAFETY: the helper has no precondition.
        Action::Redirect { ifindex } => unsafe { bpf_redirect(ifindex, 0) as u32 },
        // Not asked for: `resolves_neighbours` is false.
        Action::RedirectNeighbour { .. } => xdp_action::XDP_PASS,
    }
}
