//! The sweeps: which cells are measured, and which metrics that gives.

/// How much is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Some minutes: whether everything works, and what is obvious.
    Ci,
    /// About an hour and a half.
    Default,
    /// A night.
    Full,
}

/// Something that is varied.
#[derive(Debug)]
pub struct Factor {
    /// Name.
    pub name: &'static str,
    /// Levels at the scale `ci`, in order.
    pub ci: &'static [&'static str],
    /// Levels at the scale `default`.
    pub default: &'static [&'static str],
    /// Levels at the scale `full`.
    pub full: &'static [&'static str],
}

/// Cells that are measured together, in random order within each block.
#[derive(Debug)]
pub struct Sweep {
    /// Name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What is varied.
    pub factors: &'static [Factor],
    /// Keys of the metrics it gives, those of the thread sets apart.
    pub metrics: &'static [&'static str],
    /// The thread sets whose scheduler statistics it gives.
    pub sets: &'static [&'static str],
}

/// Metrics of each thread set.
const OF_SETS: [&str; 5] = ["use_pct", "wait_pct", "block_pct", "exec_s", "us_exec"];

impl Factor {
    /// The levels at a scale, in order.
    #[must_use]
    pub const fn levels(&self, scale: Scale) -> &'static [&'static str] {
        match scale {
            Scale::Ci => self.ci,
            Scale::Default => self.default,
            Scale::Full => self.full,
        }
    }
}

impl Sweep {
    /// Whether its samples have this metric.
    #[must_use]
    pub fn gives(&self, key: &str) -> bool {
        let of_set = |set: &&str| {
            let rest = key
                .strip_prefix(*set)
                .and_then(|rest| rest.strip_prefix('_'));
            rest.is_some_and(|rest| OF_SETS.contains(&rest))
        };
        self.metrics.contains(&key) || self.sets.iter().any(of_set)
    }

    /// The factor of this name.
    #[must_use]
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().find(|factor| factor.name == name)
    }
}

/// A factor with the same levels at every scale.
const fn fixed(name: &'static str, levels: &'static [&'static str]) -> Factor {
    Factor {
        name,
        ci: levels,
        default: levels,
        full: levels,
    }
}

const CHANNEL: Factor = fixed("channel", &["bridge", "switch"]);
const POWERS: [&str; 10] = [
    "64", "128", "256", "512", "1K", "2K", "4K", "8K", "16K", "32K",
];
const PAIR: [&str; 3] = ["vm1", "vm2", "backend"];

/// All of them, in the order in which they are run.
pub static SWEEPS: [Sweep; 15] = [
    Sweep {
        name: "noise",
        title: "A/A: the same TCP stream under two names",
        factors: &[fixed("arm", &["a", "b"])],
        metrics: &["mbit_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "mix",
        title: "five UDP streams of 1 KB, some to the second host, some to the neighbour",
        factors: &[
            CHANNEL,
            Factor {
                name: "mix",
                ci: &["5:0", "4:1", "2:3", "0:5"],
                default: &MIXES,
                full: &MIXES,
            },
        ],
        metrics: &["mbit_s", "remote_mbit_s", "local_mbit_s", "switches_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "lookup",
        title: "a UDP stream to the second host, frames looked up among so many residents",
        factors: &[RESIDENTS, LOOKUP_SIZES],
        metrics: &["mbit_s", "loss_pct", "switches_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "lookup-rr",
        title: "request and response with the second host, frames looked up among so many residents",
        factors: &[RESIDENTS, LOOKUP_SIZES],
        metrics: &["trans_s", "p50_us", "p99_us", "switches_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "udp",
        title: "a UDP stream between neighbours",
        factors: &[
            fixed("placement", &["shared", "separate"]),
            CHANNEL,
            Factor {
                name: "size",
                ci: &["64", "1K", "32K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &["mbit_s", "loss_pct", "switches_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "tcp-runs",
        title: "short TCP streams of 1 KB messages between neighbours on one core, one after the other",
        factors: &[CHANNEL],
        metrics: &["mbit_s", "cov", "slow_fast"],
        sets: &[],
    },
    Sweep {
        name: "tcp",
        title: "a TCP stream between neighbours on separate cores",
        factors: &[
            CHANNEL,
            Factor {
                name: "size",
                ci: &["64", "1K", "32K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &["mbit_s", "switches_s"],
        sets: &PAIR,
    },
    Sweep {
        name: "boundary",
        title: "each channel at its boundaries",
        factors: &[
            CHANNEL,
            Factor {
                name: "traffic",
                ci: &[
                    "tcp 64",
                    "tcp 32K",
                    "udp 64",
                    "udp 32K",
                    "udp burst",
                    "all pairs",
                    "a VM dies",
                ],
                default: &[
                    "tcp 64",
                    "tcp 32K",
                    "udp 64",
                    "udp 32K",
                    "udp burst",
                    "all pairs",
                    "a VM dies",
                ],
                full: &[
                    "tcp 64",
                    "tcp 32K",
                    "udp 64",
                    "udp 32K",
                    "udp burst",
                    "all pairs",
                    "a VM dies",
                ],
            },
        ],
        metrics: &["mbit_s", "cov", "worst", "recovery_ms"],
        sets: &[],
    },
    Sweep {
        name: "idle-max",
        title: "the most one web server can serve, beside idle VMs",
        factors: &[
            SERVER,
            Factor {
                name: "file",
                ci: &["1", "70"],
                default: &["1", "10", "70"],
                full: &["1", "10", "30", "50", "70"],
            },
            Factor {
                name: "idle",
                ci: &["0", "3"],
                default: &["0", "1", "2", "3"],
                full: &["0", "1", "2", "3"],
            },
        ],
        metrics: &["req_s", "switches_s"],
        sets: &["vm1", "backend", "idle"],
    },
    Sweep {
        name: "idle-rate",
        title: "a web server at a share of its own maximum, beside idle VMs",
        factors: &[
            Factor {
                name: "load",
                ci: &["1@20", "1@90", "200@90"],
                default: &["1@20", "1@50", "1@90", "50@90", "200@50", "200@90"],
                full: &[
                    "1@20", "1@50", "1@90", "50@90", "100@90", "200@20", "200@50", "200@90",
                ],
            },
            fixed("idle", &["0", "3"]),
        ],
        metrics: &[
            "req_s",
            "reply_ms",
            "reply_p50_ms",
            "reply_p99_ms",
            "transfer_ms",
            "switches_s",
            "vm1_use_cov",
            "vm1_wait_cov",
            "vm1_block_cov",
        ],
        sets: &["vm1", "backend", "idle"],
    },
    Sweep {
        name: "start",
        title: "VMs created, and started beside a busy web server",
        factors: &[
            Factor {
                name: "file",
                ci: &["1", "70"],
                default: &["1", "70"],
                full: &["1", "70"],
            },
            Factor {
                name: "starts",
                ci: &["0", "1"],
                default: &["0", "1", "2"],
                full: &["0", "1", "2"],
            },
        ],
        metrics: &["req_s", "start_s", "lost", "ratio"],
        sets: &["vm1", "backend"],
    },
    Sweep {
        name: "create",
        title: "a VM's disk copied, and the VM started with it",
        factors: &[fixed("disk", &["1x", "2x", "4x"])],
        metrics: &["create_s", "start_s"],
        sets: &[],
    },
    Sweep {
        name: "neighbours",
        title: "two web servers side by side, each at a share of its own maximum",
        factors: &[
            Factor {
                name: "pair",
                ci: &["1+1", "1+70", "70+70"],
                default: &["1+1", "1+10", "1+70", "10+10", "70+70"],
                full: &[
                    "1+1", "1+10", "1+30", "1+50", "1+70", "10+10", "30+30", "50+50", "70+70",
                ],
            },
            Factor {
                name: "load",
                ci: &["50", "100"],
                default: &["30", "50", "70", "100"],
                full: &["10", "30", "50", "60", "70", "80", "100"],
            },
        ],
        metrics: &[
            "vm1_req_s",
            "vm2_req_s",
            "req_s",
            "ratio",
            "fair",
            "vm1_kb_s",
            "vm2_kb_s",
            "pages_s",
        ],
        sets: &["vm1", "vm2", "guests", "backend"],
    },
    Sweep {
        name: "count",
        title: "the same load on one, two and more web servers",
        factors: &[
            Factor {
                name: "vms",
                ci: &["1", "2", "4"],
                default: &["1", "2", "4"],
                full: &["1", "2", "3", "4", "6"],
            },
            Factor {
                name: "load",
                ci: &["10 each", "120 all"],
                default: &["10 each", "60 all", "120 all"],
                full: &["10 each", "20 all", "60 all", "100 all", "120 all"],
            },
            fixed("file", &["1", "70"]),
        ],
        metrics: &["req_s", "switches_s"],
        sets: &["vm1", "guests", "backend"],
    },
    Sweep {
        name: "weights",
        title: "two web servers and the backend on one core, by weights backend:VM1:VM2",
        factors: &[
            Factor {
                name: "weight",
                ci: &["0.5:1:1", "1:1:1", "2:1:1"],
                default: &["0.5:1:1", "1:1:1", "2:1:1"],
                full: &["0.25:1:1", "0.5:1:1", "1:1:1", "2:1:1", "8:1:1"],
            },
            fixed("set", &["10+10", "70+70", "1+70"]),
        ],
        metrics: &[
            "vm1_req_s",
            "vm2_req_s",
            "req_s",
            "vm1_kb_s",
            "vm2_kb_s",
            "pages_s",
            "pages_exec",
        ],
        sets: &["vm1", "vm2", "backend"],
    },
];

const MIXES: [&str; 6] = ["5:0", "4:1", "3:2", "2:3", "1:4", "0:5"];
const RESIDENTS: Factor = Factor {
    name: "residents",
    ci: &["native", "1", "100000"],
    default: &["native", "1", "10000", "100000"],
    full: &["native", "1", "10000", "100000"],
};
/// iperf3 and sockperf send no less than 16 bytes. A message of 4 makes the same frame: 60 bytes.
const LOOKUP_SIZES: Factor = Factor {
    name: "size",
    ci: &["16", "1K"],
    default: &["16", "64", "1K", "16K"],
    full: &["16", "32", "64", "1K", "16K"],
};
const SERVER: Factor = Factor {
    name: "server",
    ci: &["httpd"],
    default: &["httpd", "nginx"],
    full: &["httpd", "nginx"],
};
