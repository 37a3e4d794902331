//! Experiments of paper 000, section 4.4, and on its consequences: TCP, and stability.

use super::experiment::{
    Curve, Experiment, Figure, Requirement, SEPARATE_CPUS, claim, difference, ratio, trend, value,
};
use crate::claim::Statistic::Crossover;
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const BRIDGE: Selector = &[("channel", "bridge")];
const SWITCH: Selector = &[("channel", "switch")];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X8",
        source: "Fig. 8",
        title: "TCP of 1 KB messages on a shared core, run by run",
        sweep: "tcp-runs",
        needs: &[Requirement::Cpus(2)],
        figures: &[
            Figure {
                source: "Fig. 8",
                title: "TCP throughput run by run",
                x: "run",
                series: &["channel"],
                metrics: &["mbit_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 8",
                title: "Variation of TCP throughput from run to run",
                x: "channel",
                metrics: &["cov"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "the switch varies more than native",
                "- (unstable)",
                difference("cov", SWITCH, BRIDGE),
                Above(0.0),
            ),
            claim(
                "the switch is slower than native",
                "- (lower)",
                ratio("mbit_s", SWITCH, BRIDGE),
                Below(1.0),
            ),
        ],
    },
    Experiment {
        id: "X9",
        source: "Fig. 9",
        title: "TCP between neighbours on separate cores",
        sweep: "tcp",
        needs: SEPARATE_CPUS,
        figures: &[Figure {
            source: "Fig. 9",
            title: "TCP throughput by message size",
            x: "size",
            series: &["channel"],
            metrics: &["mbit_s"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "the switch wins from a size S* on",
            "8 KB (4.4 says 4 KB elsewhere)",
            Crossover {
                metric: "mbit_s",
                of: SWITCH,
                to: BRIDGE,
                along: "size",
            },
            Within(2048.0, 32768.0),
        )],
    },
    Experiment {
        id: "X10",
        source: "Table 3",
        title: "the slowest against the fastest run: what costs more",
        sweep: "tcp-runs",
        needs: &[Requirement::Cpus(2)],
        figures: &[Figure {
            source: "Table 3",
            title: "Switches per MB, slowest over fastest run (for time in functions)",
            x: "channel",
            metrics: &["slow_fast"],
            paper: &[Curve {
                name: "time in a function, LOW over HIGH",
                points: &[
                    ("tcp_ack", 8.7),
                    ("csched_schedule", 13.0),
                    ("do_event_channel_op", 8.3),
                ],
            }],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "the slowest run pays more than twice the switches per MB",
            "about 9 times",
            value("slow_fast", SWITCH),
            Above(2.0),
        )],
    },
    Experiment {
        id: "X11",
        source: "Table 4",
        title: "functions of the sender at 1 KB and 32 KB",
        sweep: "profile",
        needs: &[Requirement::Cpus(2)],
        figures: &[Figure {
            source: "Table 4",
            title: "Ticks of the sender's kernel, idle ones apart (by its own profile, /proc/profile)",
            x: "size",
            metrics: &["copy_pct", "message_pct", "driver_pct"],
            paper: &[
                Curve {
                    name: "__copy_from_user_ll, skb_copy_bits",
                    points: &[("1K", 2.80), ("32K", 40.63)],
                },
                Curve {
                    name: "allocate_buffer_ring",
                    points: &[("1K", 9.74), ("32K", 3.99)],
                },
            ],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "copying takes more of the time with large messages",
                "2.80 to 40.63 %",
                difference("copy_pct", &[("size", "32K")], &[("size", "1K")]),
                Above(0.0),
            ),
            claim(
                "work for each message takes less",
                "9.74 to 3.99 %",
                difference("message_pct", &[("size", "32K")], &[("size", "1K")]),
                Below(0.0),
            ),
        ],
    },
    Experiment {
        id: "X12",
        source: "Fig. 10",
        title: "use of sender and receiver, TCP",
        sweep: "tcp",
        needs: SEPARATE_CPUS,
        figures: &[Figure {
            source: "Fig. 10",
            title: "CPU use of sender (vm1) and receiver (vm2)",
            x: "size",
            series: &["channel"],
            metrics: &["vm1_use_pct", "vm2_use_pct"],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "native: the sender's use falls with the size",
                "- (falling)",
                trend("vm1_use_pct", BRIDGE, "size"),
                Below(0.0),
            ),
            claim(
                "switch: the sender uses most of its CPU at every size",
                "- (high at all sizes)",
                value("vm1_use_pct", SWITCH),
                Above(90.0),
            ),
            claim(
                "switch: the receiver's use rises with the size",
                "- (rising)",
                trend("vm2_use_pct", SWITCH, "size"),
                Above(0.0),
            ),
        ],
    },
    Experiment {
        id: "X13",
        source: "4.4, text",
        title: "a sender with two CPUs",
        sweep: "two-cpus",
        needs: &[Requirement::Cpus(2), Requirement::Spread(4)],
        figures: &[Figure {
            source: "4.4, text",
            title: "UDP throughput by the sender's virtual CPUs",
            x: "size",
            series: &["cpus"],
            metrics: &["mbit_s"],
            ..Figure::EMPTY
        }],
        claims: &[claim(
            "two CPUs are better than one",
            "- (\"better\")",
            ratio("mbit_s", &[("cpus", "2")], &[("cpus", "1")]),
            Above(1.0),
        )],
    },
    Experiment {
        id: "X14",
        source: "3.1",
        title: "stability at the boundaries",
        sweep: "boundary",
        figures: &[
            Figure {
                source: "3.1",
                title: "Coefficient of variation over 100 ms",
                x: "traffic",
                series: &["channel"],
                metrics: &["cov"],
                ..Figure::EMPTY
            },
            Figure {
                source: "3.1",
                title: "Worst 100 ms over the median",
                x: "traffic",
                series: &["channel"],
                metrics: &["worst"],
                ..Figure::EMPTY
            },
            Figure {
                source: "3.1",
                title: "Longest standstill of a stream when a neighbour dies",
                x: "channel",
                of: &[("traffic", "a VM dies")],
                metrics: &["recovery_ms"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "the switch varies more than native",
                "- (\"fail to provide stable performance\")",
                difference("cov", SWITCH, BRIDGE),
                Above(0.0),
            ),
            claim(
                "a neighbour's death stops a stream over the switch for less than 200 ms",
                "-",
                value(
                    "recovery_ms",
                    &[("channel", "switch"), ("traffic", "a VM dies")],
                ),
                Below(200.0),
            ),
        ],
        ..Experiment::EMPTY
    },
];
