//! Experiments of paper 001, section 4: the cost of idle VMs, and starting VMs on demand. The paper's Dom0 corresponds
//! to the thread set `backend`.

use super::experiment::{Curve, Experiment, Figure, Requirement, claim, difference, ratio, value};
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const ROW: Experiment = Experiment {
    needs: &[Requirement::SecondHost],
    ..Experiment::EMPTY
};
const SMALL: Selector = &[("file", "1"), ("server", "httpd")];
const SMALL_ALONE: Selector = &[("file", "1"), ("idle", "0"), ("server", "httpd")];
const SMALL_IDLE: Selector = &[("file", "1"), ("idle", "3"), ("server", "httpd")];
const ALONE: Selector = &[("idle", "0")];
const IDLE: Selector = &[("idle", "3")];
const BUSY_ALONE: Selector = &[("idle", "0"), ("load", "1@90")];
const BUSY_IDLE: Selector = &[("idle", "3"), ("load", "1@90")];
const LARGE_ALONE: Selector = &[("idle", "0"), ("load", "200@90")];
const LARGE_IDLE: Selector = &[("idle", "3"), ("load", "200@90")];
const BY_IDLE: &[&str] = &["idle"];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "W1",
        source: "Table 2",
        title: "the most one VM can serve, with 0 to 3 idle VMs",
        sweep: "idle-max",
        figures: &[Figure {
            source: "Table 2",
            title: "Requests served at the most (file in kB)",
            x: "file",
            series: &["server", "idle"],
            metrics: &["req_s"],
            paper: &[
                Curve {
                    name: "no idle VM",
                    points: &[
                        ("1", 1070.0),
                        ("10", 720.0),
                        ("30", 380.0),
                        ("50", 230.0),
                        ("70", 165.0),
                    ],
                },
                Curve {
                    name: "3 idle VMs",
                    points: &[
                        ("1", 999.0),
                        ("10", 711.0),
                        ("30", 380.0),
                        ("50", 230.0),
                        ("70", 165.0),
                    ],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "1 kB: three idle VMs cost throughput",
                "-6.6 %",
                ratio("req_s", SMALL_IDLE, SMALL_ALONE),
                Below(1.0),
            ),
            claim(
                "70 kB: three idle VMs cost no throughput",
                "0 %",
                ratio(
                    "req_s",
                    &[("file", "70"), ("idle", "3"), ("server", "httpd")],
                    &[("file", "70"), ("idle", "0"), ("server", "httpd")],
                ),
                Within(0.98, 1.02),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W2",
        source: "Fig. 1",
        title: "CPU time per execution beside idle VMs",
        sweep: "idle-max",
        figures: &[Figure {
            source: "Fig. 1",
            title: "CPU time per execution, 1 kB",
            x: "idle",
            of: SMALL,
            metrics: &["backend_us_exec", "vm1_us_exec", "idle_us_exec"],
            paper: &[
                Curve {
                    name: "backend",
                    points: &[("0", 2464.0), ("3", 2130.0)],
                },
                Curve {
                    name: "vm1",
                    points: &[("0", 2407.0), ("3", 2046.0)],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "the backend's falls",
                "2464 to 2130 µs",
                ratio("backend_us_exec", SMALL_IDLE, SMALL_ALONE),
                Below(1.0),
            ),
            claim(
                "the busy VM's falls",
                "2407 to 2046 µs",
                ratio("vm1_us_exec", SMALL_IDLE, SMALL_ALONE),
                Below(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W3",
        source: "Fig. 2",
        title: "executions beside idle VMs",
        sweep: "idle-max",
        figures: &[Figure {
            source: "Fig. 2",
            title: "Executions, 1 kB",
            x: "idle",
            of: SMALL,
            metrics: &["backend_exec_s", "vm1_exec_s"],
            paper: &[Curve {
                name: "vm1 (a run's)",
                points: &[("0", 400_000.0), ("3", 300_000.0)],
            }],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "the busy VM's fall",
                "400,000 to 300,000",
                ratio("vm1_exec_s", SMALL_IDLE, SMALL_ALONE),
                Below(1.0),
            ),
            claim(
                "the backend's rise",
                "- (slightly up)",
                ratio("backend_exec_s", SMALL_IDLE, SMALL_ALONE),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W4",
        source: "Table 3",
        title: "throughput and times at a fixed rate, with 0 and 3 idle VMs",
        sweep: "idle-rate",
        figures: &[
            Figure {
                source: "Table 3",
                title: "Requests served (file kB @ % of the most)",
                x: "load",
                series: BY_IDLE,
                metrics: &["req_s"],
                paper: &[
                    Curve {
                        name: "0 idle",
                        points: &[
                            ("1@200/s", 200.0),
                            ("1@500/s", 500.0),
                            ("1@900/s", 897.0),
                            ("1@980/s", 958.0),
                            ("200@200/s", 200.0),
                        ],
                    },
                    Curve {
                        name: "3 idle",
                        points: &[
                            ("1@200/s", 200.0),
                            ("1@500/s", 500.0),
                            ("1@900/s", 887.0),
                            ("1@980/s", 927.0),
                            ("200@200/s", 200.0),
                        ],
                    },
                ],
                ..Figure::EMPTY
            },
            Figure {
                source: "Table 3",
                title: "Reply time, mean, from the intended send time",
                x: "load",
                series: BY_IDLE,
                metrics: &["reply_ms"],
                paper: &[
                    Curve {
                        name: "0 idle",
                        points: &[
                            ("1@200/s", 0.9),
                            ("1@500/s", 0.9),
                            ("1@900/s", 28.0),
                            ("1@980/s", 53.0),
                            ("100@200/s", 2.0),
                            ("200@200/s", 3.6),
                        ],
                    },
                    Curve {
                        name: "3 idle",
                        points: &[
                            ("1@200/s", 0.9),
                            ("1@500/s", 0.91),
                            ("1@900/s", 51.0),
                            ("1@980/s", 77.0),
                            ("100@200/s", 4.5),
                            ("200@200/s", 10.9),
                        ],
                    },
                ],
                ..Figure::EMPTY
            },
            Figure {
                source: "Table 3",
                title: "Reply time, p99 and p99.9",
                x: "load",
                series: BY_IDLE,
                metrics: &["reply_p99_ms", "reply_p999_ms"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Table 3",
                title: "Transfer time, mean",
                x: "load",
                series: BY_IDLE,
                metrics: &["transfer_ms"],
                paper: &[
                    Curve {
                        name: "0 idle",
                        points: &[
                            ("50@200/s", 2.2),
                            ("200@50/s", 4.9),
                            ("200@100/s", 5.1),
                            ("100@200/s", 5.8),
                            ("200@200/s", 9.4),
                        ],
                    },
                    Curve {
                        name: "3 idle",
                        points: &[
                            ("50@200/s", 2.2),
                            ("200@50/s", 5.1),
                            ("200@100/s", 5.2),
                            ("100@200/s", 11.9),
                            ("200@200/s", 30.0),
                        ],
                    },
                ],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "near the maximum the reply time suffers",
                "28 to 51 ms (+82 %) at 900/s",
                ratio("reply_ms", BUSY_IDLE, BUSY_ALONE),
                Above(1.0),
            ),
            claim(
                "the throughput suffers less than 5 %",
                "-1.1 % at 900/s",
                ratio("req_s", BUSY_IDLE, BUSY_ALONE),
                Above(0.95),
            ),
            claim(
                "the transfer time of large files suffers",
                "9.4 to 30.0 ms at 200 kB",
                ratio("transfer_ms", LARGE_IDLE, LARGE_ALONE),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W5",
        source: "Fig. 3",
        title: "VM switches beside idle VMs",
        sweep: "idle-rate",
        figures: &[
            Figure {
                source: "Fig. 3",
                title: "Switches straight from a VM, or the backend, to another",
                x: "load",
                series: BY_IDLE,
                metrics: &["vm_switches_s"],
                paper: &[
                    Curve {
                        name: "0 idle (a run's)",
                        points: &[("1@20", 872_614.0)],
                    },
                    Curve {
                        name: "3 idle (a run's)",
                        points: &[("1@20", 990_169.0)],
                    },
                ],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 3",
                title: "All context switches of guests and backend",
                x: "load",
                series: BY_IDLE,
                metrics: &["switches_s"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "idle VMs add switches between VMs",
                "+13.5 %",
                ratio("vm_switches_s", IDLE, ALONE),
                Above(1.0),
            ),
            claim(
                "idle VMs add switches of all kinds",
                "+13.5 %",
                ratio("switches_s", IDLE, ALONE),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W6",
        source: "Fig. 4",
        title: "blocks and wakes beside idle VMs",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 4",
            title: "Executions (each ends in a block or a preemption)",
            x: "load",
            series: BY_IDLE,
            metrics: &["vm1_exec_s", "backend_exec_s"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "they go up",
            "- (up)",
            ratio("vm1_exec_s", IDLE, ALONE),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W7",
        source: "Fig. 5",
        title: "CPU use by domain, 1 kB",
        sweep: "idle-rate",
        figures: &[Figure {
            source: "Fig. 5",
            title: "CPU use",
            x: "load",
            series: BY_IDLE,
            metrics: &["backend_use_pct", "vm1_use_pct", "idle_use_pct"],
            paper: &[
                Curve {
                    name: "vm1, 0 idle",
                    points: &[("1@90", 55.0)],
                },
                Curve {
                    name: "vm1, 3 idle",
                    points: &[("1@90", 52.0)],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "an idle VM costs CPU time",
                "about 1 %",
                value("idle_use_pct", IDLE),
                Above(0.1),
            ),
            claim(
                "near the maximum the busy VM loses share",
                "55 to 52 %",
                difference("vm1_use_pct", BUSY_IDLE, BUSY_ALONE),
                Below(0.0),
            ),
        ],
        ..ROW
    },
];
