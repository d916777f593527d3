//! The programs, run by `BPF_PROG_TEST_RUN` in a namespace with fixed neighbours. Needs root.

use aya::TestRun;
use aya::programs::TestRunOptions;
use xdp_lb::{AttachMode, Config, FastPath};
use xdp_lb_common::verdict::Verdict;

use crate::rig::{CLIENT, Fate, MEMBER, Rig, services};
use crate::support::Lab;
use crate::wire::{CLIENT_MAC, MEMBER_MAC};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Classifier,
    Xdp,
}

pub(crate) struct Kernel {
    program: Program,
    fast_path: Option<FastPath>,
    ingress: u32,
    _lab: Lab,
}

impl Kernel {
    pub(crate) fn new(program: Program) -> Self {
        let lab = Lab::new(0);
        for (address, mac, device) in [
            (CLIENT[0], CLIENT_MAC, "front"),
            (CLIENT[1], CLIENT_MAC, "front"),
            (MEMBER[0], MEMBER_MAC, "back"),
            (MEMBER[1], MEMBER_MAC, "back"),
        ] {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            lab.lb.ip(&format!(
                "neigh replace {address} lladdr {} dev {device} nud permanent",
                mac.join(":")
            ));
        }
        let mut fast_path = lab.fast_path();
        let front = lab.interface("front", AttachMode::Tcx);
        let ingress = front.ifindex;
        let config = Config {
            interfaces: vec![front, lab.interface("back", AttachMode::Tcx)],
            services: services(),
        };
        crate::support::apply(&mut fast_path, &config);
        Self {
            program,
            fast_path: Some(fast_path),
            ingress,
            _lab: lab,
        }
    }

    fn fast_path(&self) -> &FastPath {
        self.fast_path.as_ref().expect("held until dropped")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(fast_path) = self.fast_path.take()
            && let Err(error) = fast_path.detach()
        {
            eprintln!("detach: {error}");
        }
    }
}

impl Rig for Kernel {
    fn name(&self) -> &'static str {
        match self.program {
            Program::Classifier => "classifier",
            Program::Xdp => "xdp",
        }
    }

    fn send(&mut self, packet: &[u8]) -> (Fate, Vec<u8>) {
        let mut out = vec![0u8; 4096];
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        let (result, fate) = match self.program {
            Program::Classifier => {
                // `struct __sk_buff`: ingress_ifindex is the tenth word, ifindex the eleventh.
                let mut context = vec![0u8; 192];
                context[36..40].copy_from_slice(&self.ingress.to_ne_bytes());
                context[40..44].copy_from_slice(&self.ingress.to_ne_bytes());
                options.ctx_in = Some(&context);
                let program = self.fast_path().classifier().expect("classifier");
                let result = program.test_run(options).expect("run classifier");
                let fate = match result.return_value {
                    0 => Fate::Pass,
                    2 => Fate::Drop,
                    7 => Fate::Sent,
                    other => panic!("unknown TC action {other}"),
                };
                (result, fate)
            }
            Program::Xdp => {
                // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
                let mut context = vec![0u8; 24];
                let length = u32::try_from(packet.len()).expect("small");
                context[4..8].copy_from_slice(&length.to_ne_bytes());
                context[12..16].copy_from_slice(&self.ingress.to_ne_bytes());
                options.ctx_in = Some(&context);
                let program = self.fast_path().xdp().expect("XDP program");
                let result = program.test_run(options).expect("run XDP program");
                let fate = match result.return_value {
                    2 => Fate::Pass,
                    1 => Fate::Drop,
                    3 | 4 => Fate::Sent,
                    other => panic!("unknown XDP action {other}"),
                };
                (result, fate)
            }
        };
        out.truncate(usize::try_from(result.data_size_out).expect("small"));
        (fate, out)
    }

    fn counted(&self, verdict: Verdict) -> u64 {
        self.fast_path().stats().expect("stats").verdicts[verdict.name()]
    }

    fn shortest(&self, is_v4: bool) -> usize {
        match (self.program, is_v4) {
            // The harness itself refuses less than an IP header here.
            (Program::Classifier, true) => 34,
            (Program::Classifier, false) => 54,
            (Program::Xdp, _) => 14,
        }
    }
}
