//! Sweeps of web servers, and of creating and starting VMs: paper 001.

use super::sweep::{Factor, Sweep, fixed};

/// The sweeps, in the order in which they are run.
pub(super) static SWEEPS: &[Sweep] = &[
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
        metrics: &["req_s", "switches_s", "vm_switches_s"],
        sets: &["vm1", "backend", "idle"],
        cost: 1.0,
    },
    Sweep {
        name: "idle-rate",
        title: "a web server at a share of its own maximum, beside idle VMs",
        factors: &[
            SERVER,
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
            "reply_p999_ms",
            "transfer_ms",
            "switches_s",
            "vm_switches_s",
            "vm1_use_cov",
            "vm1_wait_cov",
            "vm1_block_cov",
        ],
        sets: &["vm1", "backend", "idle"],
        cost: 1.2,
    },
    Sweep {
        name: "start",
        title: "VMs created, and started beside a busy web server",
        factors: &[
            SERVER,
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
        metrics: &[
            "req_s",
            "start_s",
            "first_s",
            "lost",
            "dip_s",
            "recovery_ms",
            "ratio",
        ],
        sets: &["vm1", "backend"],
        cost: 4.6,
    },
    Sweep {
        name: "create",
        title: "a VM's disk copied, and the VM started with it",
        factors: &[fixed("disk", &["1x", "2x", "4x"])],
        metrics: &["create_s", "start_s"],
        sets: &[],
        cost: 1.5,
    },
    Sweep {
        name: "neighbours",
        title: "two web servers side by side, each at a share of its own maximum",
        factors: &[
            SERVER,
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
        cost: 1.2,
    },
    Sweep {
        name: "count",
        title: "the same load on one, two and more web servers",
        factors: &[
            SERVER,
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
        metrics: &["req_s", "switches_s", "vm_switches_s"],
        sets: &["vm1", "guests", "backend"],
        cost: 1.1,
    },
    Sweep {
        name: "weights",
        title: "two web servers and the backend on one core, by weights backend:VM1:VM2",
        factors: &[
            SERVER,
            Factor {
                name: "weight",
                ci: &["0.5:1:1", "1:1:1", "2:1:1"],
                default: &WEIGHTS,
                full: &WEIGHTS,
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
            "vm_switches_s",
        ],
        sets: &["vm1", "vm2", "backend"],
        cost: 1.2,
    },
];

const WEIGHTS: [&str; 6] = ["0.25:1:1", "0.5:1:1", "1:1:1", "2:1:1", "4:1:1", "8:1:1"];
const SERVER: Factor = Factor {
    name: "server",
    ci: &["httpd"],
    default: &["httpd", "nginx"],
    full: &["httpd", "nginx"],
};
