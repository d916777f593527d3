//! Why a packet went where it went: the index of the per-CPU verdict counters.

macro_rules! verdicts {
    ($($(#[$doc:meta])* $name:ident = $index:literal, $text:literal;)*) => {
        /// What was decided about one packet, and why.
        #[repr(u32)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Verdict {
            $($(#[$doc])* $name = $index,)*
        }

        impl Verdict {
            /// Every verdict, in index order.
            pub const ALL: &'static [Verdict] = &[$(Verdict::$name,)*];

            /// Stable name for statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Verdict::$name => $text,)*
                }
            }
        }
    };
}

verdicts! {
    /// To a member.
    ForwardToMember = 0, "forward_to_member";
    /// Back to a client.
    ForwardToClient = 1, "forward_to_client";
    /// An ICMP error about a flow, translated and passed on.
    ForwardIcmpError = 2, "forward_icmp_error";
    /// A predecessor's connection, sent on to it.
    ForwardHandover = 3, "forward_handover";
    /// Forwarded through the neighbour layer, because the next hop's MAC is not known yet.
    ForwardUnresolved = 4, "forward_unresolved";
    /// Not ours: untouched to the stack.
    PassNotService = 5, "pass_not_service";
    /// Neither IPv4 nor IPv6.
    PassNotIp = 6, "pass_not_ip";
    /// VLAN tagged.
    PassVlan = 7, "pass_vlan";
    /// A header does not fit or contradicts itself: untouched to the stack, which drops it.
    PassMalformed = 8, "pass_malformed";
    /// IP fragment: untouched to the stack.
    PassFragment = 9, "pass_fragment";
    /// TCP for a service, no flow and not a SYN: to the stack, which answers RST.
    PassNoFlow = 10, "pass_no_flow";
    /// New flow but no usable member: to the stack, which answers RST or port unreachable.
    PassNoMember = 11, "pass_no_member";
    /// TCP flow whose member is down: to the stack, which answers RST.
    PassMemberDown = 12, "pass_member_down";
    /// XDP left the packet to the classifier behind it (next hop not resolved).
    PassToClassifier = 13, "pass_to_classifier";
    /// Listener's connection limit reached.
    DropConnectionLimit = 14, "drop_connection_limit";
    /// No free source port towards the member.
    DropNoPort = 15, "drop_no_port";
    /// Flow table refused an entry.
    DropTableFull = 16, "drop_table_full";
    /// No route to the member.
    DropNoRoute = 17, "drop_no_route";
    /// The interface towards the member has no SNAT address of the family.
    DropNoSnatAddress = 18, "drop_no_snat_address";
    /// Larger than the MTU of the way out.
    DropTooBig = 19, "drop_too_big";
    /// TTL or hop limit used up.
    DropTtlExpired = 20, "drop_ttl_expired";
    /// A map entry that must exist is missing.
    DropInternal = 21, "drop_internal";
    /// A flow was moved to another member because its member gave no answer or went down.
    FlowMoved = 22, "flow_moved";
    /// A closed flow's source port was taken over.
    PortReclaimed = 23, "port_reclaimed";
    /// Too large for the way out: the sender was told by ICMP.
    ReplyTooBig = 24, "reply_too_big";
    /// Later fragment of a forwarded datagram.
    ForwardFragment = 25, "forward_fragment";
    /// New flow of a client that the listener does not allow.
    DropNotAllowed = 26, "drop_not_allowed";
}

/// Size of the verdict map.
pub const VERDICT_SLOTS: u32 = 32;

const _: () = assert!(Verdict::ALL.len() <= VERDICT_SLOTS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_its_own_index_and_name() {
        for (index, verdict) in Verdict::ALL.iter().enumerate() {
            assert_eq!(*verdict as usize, index);
            let twins = Verdict::ALL.iter().filter(|v| v.name() == verdict.name());
            assert_eq!(twins.count(), 1, "{}", verdict.name());
        }
    }
}
