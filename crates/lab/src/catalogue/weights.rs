//! Experiments of paper 001, section 6: CPU weights, in the order backend:VM1:VM2.

use super::experiment::{Curve, Experiment, Figure, Requirement, claim, difference, ratio, trend};
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const EMPTY: Figure = Figure {
    x: "weight",
    ..Figure::EMPTY
};
const ROW: Experiment = Experiment {
    sweep: "weights",
    needs: &[
        Requirement::SecondHost,
        Requirement::Groups,
        Requirement::Cpus(2),
    ],
    ..Experiment::EMPTY
};
const SAME: Selector = &[("set", "10+10")];
const MIXED: Selector = &[("set", "1+70")];
const SAME_LIGHT: Selector = &[("set", "10+10"), ("weight", "0.5:1:1")];
const SAME_HEAVY: Selector = &[("set", "10+10"), ("weight", "2:1:1")];
const MIXED_LIGHT: Selector = &[("set", "1+70"), ("weight", "0.5:1:1")];
const MIXED_HEAVY: Selector = &[("set", "1+70"), ("weight", "2:1:1")];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "W23",
        source: "Fig. 24",
        title: "throughput by weight",
        figures: &[
            Figure {
                source: "Fig. 24",
                title: "Requests of both VMs (sets of files in kB)",
                series: &["set"],
                metrics: &["req_s"],
                paper: &[Curve {
                    name: "10+10",
                    points: &[("0.5:1:1", 720.0), ("1:1:1", 608.0), ("2:1:1", 534.0)],
                }],
                ..EMPTY
            },
            Figure {
                source: "Fig. 24",
                title: "Requests of each VM, 1 kB and 70 kB",
                of: MIXED,
                metrics: &["vm1_req_s", "vm2_req_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "twice 10 kB: it falls with the backend's weight",
                "720 to 534 (-25 %)",
                ratio("req_s", SAME_HEAVY, SAME_LIGHT),
                Below(1.0),
            ),
            claim(
                "twice 70 kB: it does not change",
                "- (flat)",
                ratio(
                    "req_s",
                    &[("set", "70+70"), ("weight", "2:1:1")],
                    &[("set", "70+70"), ("weight", "0.5:1:1")],
                ),
                Within(0.95, 1.05),
            ),
            claim(
                "1 kB beside 70 kB: the 1 kB server loses",
                "-30 %",
                ratio("vm1_req_s", MIXED_HEAVY, MIXED_LIGHT),
                Below(1.0),
            ),
            claim(
                "1 kB beside 70 kB: the 70 kB server gains",
                "+16 %",
                ratio("vm2_req_s", MIXED_HEAVY, MIXED_LIGHT),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W24",
        source: "Figs. 25-27",
        title: "use, wait and block by weight, 1 kB beside 70 kB",
        figures: &[
            Figure {
                source: "Fig. 25",
                title: "CPU use",
                of: MIXED,
                metrics: &["backend_use_pct", "vm1_use_pct", "vm2_use_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 26",
                title: "Waiting",
                of: MIXED,
                metrics: &["backend_wait_pct", "vm1_wait_pct", "vm2_wait_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 27",
                title: "Blocked",
                of: MIXED,
                metrics: &["backend_block_pct", "vm1_block_pct", "vm2_block_pct"],
                ..EMPTY
            },
            Figure {
                source: "Figs. 25-27",
                title: "Switches straight from a VM, or the backend, to another",
                of: MIXED,
                metrics: &["vm_switches_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "the backend waits less",
                "- (falls)",
                difference("backend_wait_pct", MIXED_HEAVY, MIXED_LIGHT),
                Below(0.0),
            ),
            claim(
                "VM1 waits more",
                "- (rises)",
                difference("vm1_wait_pct", MIXED_HEAVY, MIXED_LIGHT),
                Above(0.0),
            ),
            claim(
                "VM1 blocks less",
                "- (falls)",
                difference("vm1_block_pct", MIXED_HEAVY, MIXED_LIGHT),
                Below(0.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W25",
        source: "Figs. 28, 29",
        title: "CPU per execution and executions by weight, 1 kB beside 70 kB",
        figures: &[
            Figure {
                source: "Fig. 28",
                title: "CPU time per execution",
                of: MIXED,
                metrics: &["backend_us_exec", "vm1_us_exec", "vm2_us_exec"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 29",
                title: "Executions",
                of: MIXED,
                metrics: &["backend_exec_s", "vm1_exec_s", "vm2_exec_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "VM1's CPU time per execution falls",
                "to about a third",
                ratio("vm1_us_exec", MIXED_HEAVY, MIXED_LIGHT),
                Below(1.0),
            ),
            claim(
                "the backend's executions rise",
                "- (up)",
                ratio("backend_exec_s", MIXED_HEAVY, MIXED_LIGHT),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W26",
        source: "Figs. 30-32",
        title: "use, block and wait by weight, twice 10 kB",
        figures: &[
            Figure {
                source: "Fig. 30",
                title: "CPU use",
                of: SAME,
                metrics: &["backend_use_pct", "vm1_use_pct", "vm2_use_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 31",
                title: "Blocked",
                of: SAME,
                metrics: &["backend_block_pct", "vm1_block_pct", "vm2_block_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 32",
                title: "Waiting",
                of: SAME,
                metrics: &["backend_wait_pct", "vm1_wait_pct", "vm2_wait_pct"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "the backend waits less",
                "- (falls)",
                difference("backend_wait_pct", SAME_HEAVY, SAME_LIGHT),
                Below(0.0),
            ),
            claim(
                "VM1 waits more",
                "- (rises)",
                difference("vm1_wait_pct", SAME_HEAVY, SAME_LIGHT),
                Above(0.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W27",
        source: "Table 5",
        title: "the backend's efficiency by weight, twice 10 kB",
        figures: &[
            Figure {
                source: "Table 5",
                title: "Requests of both VMs",
                of: SAME,
                metrics: &["req_s"],
                paper: &[Curve {
                    name: "both VMs",
                    points: &[("0.5:1:1", 720.0), ("1:1:1", 608.0), ("2:1:1", 534.0)],
                }],
                ..EMPTY
            },
            Figure {
                source: "Table 5",
                title: "Pages (bytes / 4096)",
                of: SAME,
                metrics: &["pages_s"],
                paper: &[Curve {
                    name: "Dom0",
                    points: &[("0.5:1:1", 11_520.0), ("1:1:1", 9728.0), ("2:1:1", 8544.0)],
                }],
                ..EMPTY
            },
            Figure {
                source: "Table 5",
                title: "CPU time per execution of the backend",
                of: SAME,
                metrics: &["backend_us_exec"],
                paper: &[Curve {
                    name: "Dom0 (its figures are of ns, not of µs)",
                    points: &[("0.5:1:1", 308.672), ("1:1:1", 211.771), ("2:1:1", 184.084)],
                }],
                ..EMPTY
            },
            Figure {
                source: "Table 5",
                title: "Pages per execution of the backend",
                of: SAME,
                metrics: &["pages_exec"],
                paper: &[Curve {
                    name: "Dom0",
                    points: &[("0.5:1:1", 12.1), ("1:1:1", 8.8), ("2:1:1", 4.6)],
                }],
                ..EMPTY
            },
            Figure {
                source: "Table 5",
                title: "Executions of the backend",
                of: SAME,
                metrics: &["backend_exec_s"],
                paper: &[Curve {
                    name: "Dom0",
                    points: &[("0.5:1:1", 950.0), ("1:1:1", 1102.7), ("2:1:1", 1846.0)],
                }],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "pages per execution fall with the weight",
                "12.1 / 8.8 / 4.6",
                trend("pages_exec", SAME, "weight"),
                Below(0.0),
            ),
            claim(
                "executions rise with the weight",
                "950 / 1102.7 / 1846",
                trend("backend_exec_s", SAME, "weight"),
                Above(0.0),
            ),
        ],
        ..ROW
    },
];
