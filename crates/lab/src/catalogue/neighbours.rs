//! Experiments of paper 001, section 5: VMs that serve side by side.

use super::experiment::{Curve, Experiment, Figure, Requirement, claim, difference, ratio};
use crate::claim::Statistic::{Decline, Metrics};
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const ROW: Experiment = Experiment {
    sweep: "neighbours",
    needs: &[Requirement::SecondHost],
    ..Experiment::EMPTY
};
const BY_PAIR: &[&str] = &["pair"];
const TWO_SMALL: Selector = &[("pair", "1+1")];

/// Figure 15 of the paper, with one plot for each metric.
const FAIRNESS: Figure = Figure {
    source: "Fig. 15",
    x: "load",
    of: TWO_SMALL,
    ..Figure::EMPTY
};

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "W15",
        source: "Fig. 15",
        title: "two like VMs at half load: fairness",
        figures: &[
            Figure {
                title: "Requests of each VM, twice 1 kB",
                metrics: &["vm1_req_s", "vm2_req_s"],
                paper: &[
                    Curve {
                        name: "VM1",
                        points: &[("50", 480.0)],
                    },
                    Curve {
                        name: "VM2",
                        points: &[("50", 487.0)],
                    },
                ],
                ..FAIRNESS
            },
            Figure {
                title: "kB of each VM, twice 1 kB",
                metrics: &["vm1_kb_s", "vm2_kb_s"],
                paper: &[
                    Curve {
                        name: "VM1",
                        points: &[("50", 609.0)],
                    },
                    Curve {
                        name: "VM2",
                        points: &[("50", 622.0)],
                    },
                ],
                ..FAIRNESS
            },
            Figure {
                title: "CPU of each VM, twice 1 kB",
                metrics: &["vm1_use_pct", "vm2_use_pct"],
                paper: &[
                    Curve {
                        name: "VM1",
                        points: &[("50", 36.1)],
                    },
                    Curve {
                        name: "VM2",
                        points: &[("50", 36.8)],
                    },
                ],
                ..FAIRNESS
            },
        ],
        claims: &[claim(
            "they get the same within 5 %",
            "480 / 487",
            Metrics {
                metric: "vm1_req_s",
                to: "vm2_req_s",
                of: &[("load", "50"), ("pair", "1+1")],
            },
            Within(0.95, 1.05),
        )],
        ..ROW
    },
    Experiment {
        id: "W16",
        source: "Fig. 16",
        title: "two like VMs by load",
        figures: &[Figure {
            source: "Fig. 16",
            title: "Requests of both VMs by load",
            x: "load",
            series: BY_PAIR,
            metrics: &["req_s"],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "1 kB: throughput falls beyond its peak",
                "- (peak at 50 to 60 %)",
                Decline {
                    metric: "req_s",
                    of: TWO_SMALL,
                    along: "load",
                },
                Below(0.98),
            ),
            claim(
                "70 kB: it does not",
                "- (flat)",
                Decline {
                    metric: "req_s",
                    of: &[("pair", "70+70")],
                    along: "load",
                },
                Above(0.95),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "W17",
        source: "Fig. 17",
        title: "CPU of backend and guests, 1 kB and 70 kB",
        figures: &[Figure {
            source: "Fig. 17",
            title: "CPU use of guests and backend",
            x: "load",
            series: BY_PAIR,
            metrics: &["guests_use_pct", "backend_use_pct"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "the guests use more for 1 kB than for 70 kB",
            "- (much more)",
            difference(
                "guests_use_pct",
                &[("load", "50"), ("pair", "1+1")],
                &[("load", "50"), ("pair", "70+70")],
            ),
            Above(0.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W18",
        source: "Figs. 18, 19",
        title: "a 1 kB server beside others",
        figures: &[
            Figure {
                source: "Fig. 18",
                title: "Requests of VM1 by its neighbour",
                x: "load",
                series: BY_PAIR,
                metrics: &["vm1_req_s"],
                paper: &[
                    Curve {
                        name: "beside 1 kB",
                        points: &[("50", 494.0)],
                    },
                    Curve {
                        name: "beside 70 kB",
                        points: &[("70", 661.0)],
                    },
                ],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 19",
                title: "Requests of VM2",
                x: "load",
                series: BY_PAIR,
                metrics: &["vm2_req_s"],
                ..Figure::EMPTY
            },
        ],
        claims: &[claim(
            "it serves more beside a 70 kB server than beside its like",
            "661 / 494 (+34 %)",
            ratio(
                "vm1_req_s",
                &[("load", "100"), ("pair", "1+70")],
                &[("load", "100"), ("pair", "1+1")],
            ),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W19",
        source: "Fig. 20",
        title: "aggregated throughput ratio by pair",
        figures: &[Figure {
            source: "Fig. 20",
            title: "Sum of each VM's share of its own maximum",
            x: "load",
            series: BY_PAIR,
            metrics: &["ratio"],
            paper: &[
                Curve {
                    name: "1+1",
                    points: &[("50", 0.92)],
                },
                Curve {
                    name: "1+70",
                    points: &[("70", 1.30)],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "unlike pairs do better than like ones",
            "1.30 / 0.92",
            ratio(
                "ratio",
                &[("load", "100"), ("pair", "1+70")],
                &[("load", "100"), ("pair", "1+1")],
            ),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W20",
        source: "Fig. 21",
        title: "CPU per VM by the number of VMs, 10 % load each",
        sweep: "count",
        figures: &[Figure {
            source: "Fig. 21",
            title: "CPU use of VM1",
            x: "vms",
            series: &["file"],
            of: &[("load", "10 each")],
            metrics: &["vm1_use_pct"],
            paper: &[Curve {
                name: "1 kB",
                points: &[("1", 6.9), ("6", 9.8)],
            }],
        }],
        claims: &[claim(
            "each VM needs more CPU among more VMs",
            "6.9 to 9.8 %",
            ratio(
                "vm1_use_pct",
                &[("load", "10 each"), ("vms", "4")],
                &[("load", "10 each"), ("vms", "1")],
            ),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W21",
        source: "Fig. 22",
        title: "CPU of backend and guests, the load on one or two VMs",
        sweep: "count",
        figures: &[Figure {
            source: "Fig. 22",
            title: "CPU use at 120 % in all",
            x: "vms",
            series: &["file"],
            of: &[("load", "120 all")],
            metrics: &["backend_use_pct", "guests_use_pct"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "the backend's share is higher with two VMs",
            "- (higher)",
            ratio(
                "backend_use_pct",
                &[("load", "120 all"), ("vms", "2")],
                &[("load", "120 all"), ("vms", "1")],
            ),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "W22",
        source: "Fig. 23",
        title: "the backend's CPU among contending VMs",
        sweep: "count",
        figures: &[Figure {
            source: "Fig. 23",
            title: "CPU use of the backend at 120 % in all",
            x: "vms",
            series: &["file"],
            of: &[("load", "120 all")],
            metrics: &["backend_use_pct"],
            paper: &[
                Curve {
                    name: "70 kB",
                    points: &[("1", 32.5), ("6", 31.3)],
                },
                Curve {
                    name: "1 kB",
                    points: &[("1", 33.8), ("6", 18.6)],
                },
            ],
        }],
        claims: &[
            claim(
                "1 kB: it starves",
                "33.8 to 18.6 %",
                ratio(
                    "backend_use_pct",
                    &[("file", "1"), ("load", "120 all"), ("vms", "4")],
                    &[("file", "1"), ("load", "120 all"), ("vms", "1")],
                ),
                Below(0.9),
            ),
            claim(
                "70 kB: it does not",
                "32.5 to 31.3 %",
                ratio(
                    "backend_use_pct",
                    &[("file", "70"), ("load", "120 all"), ("vms", "4")],
                    &[("file", "70"), ("load", "120 all"), ("vms", "1")],
                ),
                Within(0.9, 1.1),
            ),
        ],
        ..ROW
    },
];
