//! Experiments of paper 001, sections 4.2 to 4.4: which threads use the CPU time beside idle VMs, and starting VMs on
//! demand.

use super::experiment::{
    Curve, Experiment, Figure, Requirement, claim, difference, ratio, trend, value,
};
use crate::claim::Statistic::Gap;
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const ROW: Experiment = Experiment {
    needs: &[Requirement::SecondHost],
    ..Experiment::EMPTY
};
const IDLE: Selector = &[("idle", "3")];
const BUSY_ALONE: Selector = &[("idle", "0"), ("load", "1@90")];
const BUSY_IDLE: Selector = &[("idle", "3"), ("load", "1@90")];
const BY_IDLE: &[&str] = &["idle"];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "W8",
        source: "Fig. 6, Table 4",
        title: "block time by domain, 1 kB",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 6",
            title: "Blocked",
            x: "load",
            series: BY_IDLE,
            metrics: &["backend_block_pct", "vm1_block_pct", "idle_block_pct"],
            paper: &[
                Curve {
                    name: "backend, 0 idle",
                    points: &[("1@20", 79.2), ("1@50", 53.8), ("1@90", 40.7)],
                },
                Curve {
                    name: "vm1, 0 idle",
                    points: &[("1@20", 84.0), ("1@50", 58.5), ("1@90", 11.8)],
                },
                Curve {
                    name: "vm1, 3 idle",
                    points: &[("1@20", 82.6), ("1@50", 56.4), ("1@90", 8.4)],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "the busy VM's block time collapses near the maximum",
                "84.0 to 11.8 %",
                difference("vm1_block_pct", &[("load", "1@90")], &[("load", "1@20")]),
                Below(-20.0),
            ),
            claim(
                "idle VMs stay blocked more than 90 %",
                "95.7 to 96.8 %",
                value("idle_block_pct", IDLE),
                Above(90.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W9",
        source: "Fig. 7",
        title: "wait time by domain, 1 kB",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 7",
            title: "Waiting",
            x: "load",
            series: BY_IDLE,
            metrics: &["backend_wait_pct", "vm1_wait_pct", "idle_wait_pct"],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "idle VMs wait little",
                "- (very low, thanks to BOOST)",
                value("idle_wait_pct", IDLE),
                Below(5.0),
            ),
            claim(
                "the busy VM waits more beside idle VMs",
                "- (higher at 900/s)",
                difference("vm1_wait_pct", BUSY_IDLE, BUSY_ALONE),
                Above(0.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W10",
        source: "Figs. 8-10",
        title: "use, wait and block for large files",
        sweep: "idle-rate",
        figures: &[
            Figure {
                source: "Fig. 8",
                title: "CPU use, 200 kB",
                x: "idle",
                of: &[("load", "200@90")],
                metrics: &["backend_use_pct", "vm1_use_pct", "idle_use_pct"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 9",
                title: "Waiting, 200 kB",
                x: "idle",
                of: &[("load", "200@90")],
                metrics: &["backend_wait_pct", "vm1_wait_pct", "idle_wait_pct"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 10",
                title: "Blocked, 200 kB",
                x: "idle",
                of: &[("load", "200@90")],
                metrics: &["backend_block_pct", "vm1_block_pct", "idle_block_pct"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "the backend uses more CPU than the VM",
                "- (more)",
                Gap {
                    metric: "backend_use_pct",
                    to: "vm1_use_pct",
                    of: &[("load", "200@90")],
                },
                Above(0.0),
            ),
            claim(
                "the backend waits longer than the VM",
                "- (longer)",
                Gap {
                    metric: "backend_wait_pct",
                    to: "vm1_wait_pct",
                    of: &[("load", "200@90")],
                },
                Above(0.0),
            ),
            claim(
                "the backend blocks less than the VM",
                "- (less)",
                Gap {
                    metric: "backend_block_pct",
                    to: "vm1_block_pct",
                    of: &[("load", "200@90")],
                },
                Below(0.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W11",
        source: "Fig. 11",
        title: "which metric is stable",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 11",
            title: "Coefficient of variation over sub-samples",
            x: "load",
            series: BY_IDLE,
            metrics: &["vm1_use_cov", "vm1_block_cov", "vm1_wait_cov"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "use varies less than wait",
            "- (use lowest, wait highest)",
            Gap {
                metric: "vm1_use_cov",
                to: "vm1_wait_cov",
                of: &[],
            },
            Below(0.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W12",
        source: "Fig. 12",
        title: "variation of the wait time by rate",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 12",
            title: "Coefficient of variation of waiting",
            x: "load",
            series: BY_IDLE,
            metrics: &["vm1_wait_cov"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "the variation of the wait time grows with the rate",
            "- (jumps at high rates)",
            difference("vm1_wait_cov", &[("load", "1@90")], &[("load", "1@20")]),
            Above(0.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W13",
        source: "Fig. 13",
        title: "creating and starting VMs by disk size",
        sweep: "create",
        needs: &[],
        figures: &[Figure {
            source: "Fig. 13",
            title: "Creation (a full copy) and start",
            x: "disk",
            metrics: &["create_s", "start_s"],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "creation takes longer for larger disks",
                "- (grows)",
                trend("create_s", &[], "disk"),
                Above(0.0),
            ),
            claim(
                "the start does not depend on the size",
                "- (insignificant)",
                ratio("start_s", &[("disk", "4x")], &[("disk", "1x")]),
                Within(0.9, 1.1),
            ),
        ],
    },
    Experiment {
        id: "W14",
        source: "Fig. 14",
        title: "starting VMs beside a busy one",
        sweep: "start",
        figures: &[
            Figure {
                source: "Fig. 14",
                title: "Normalised throughput while VMs start",
                x: "starts",
                series: &["file"],
                metrics: &["ratio"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 14",
                title: "Normalised throughput over time; the VMs are started at 500 ms",
                x: "ms",
                series: &["file", "starts"],
                metrics: &["ratio"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 14",
                title: "Area of the dip: the largest number of late requests, as seconds of the VM's own rate",
                x: "starts",
                series: &["file"],
                metrics: &["dip_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 14",
                title: "Time from the start until no request is late",
                x: "starts",
                series: &["file"],
                metrics: &["recovery_ms"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 14",
                title: "Start time, and time to the first answer of the VMs that were started",
                x: "starts",
                series: &["file"],
                metrics: &["start_s", "first_s"],
                paper: &[Curve {
                    name: "1 kB",
                    points: &[("1", 47.0), ("2", 75.0)],
                }],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "a start costs the busy VM throughput (1 kB)",
                "- (a dip, within 100 s)",
                ratio(
                    "req_s",
                    &[("file", "1"), ("starts", "1")],
                    &[("file", "1"), ("starts", "0")],
                ),
                Below(1.0),
            ),
            claim(
                "the dip beside a start is larger than what happens without one (1 kB)",
                "- (a dip, within 100 s)",
                difference(
                    "dip_s",
                    &[("file", "1"), ("starts", "1")],
                    &[("file", "1"), ("starts", "0")],
                ),
                Above(0.0),
            ),
            claim(
                "the dip (depth times duration) is larger for 1 kB than for 70 kB",
                "- (larger for the CPU-bound file)",
                difference(
                    "dip_s",
                    &[("file", "1"), ("starts", "1")],
                    &[("file", "70"), ("starts", "1")],
                ),
                Above(0.0),
            ),
            claim(
                "a start takes longer beside the 1 kB server",
                "- (CPU-bound neighbours cost more)",
                ratio(
                    "start_s",
                    &[("file", "1"), ("starts", "1")],
                    &[("file", "70"), ("starts", "1")],
                ),
                Above(1.0),
            ),
        ],
        ..ROW
    },
];
