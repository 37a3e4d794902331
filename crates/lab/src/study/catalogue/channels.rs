//! Paper 000: channels between co-resident VMs. Its "native" is our `bridge`, its shared memory
//! channel our `switch`.

use super::{Curve, Experiment, Figure, Need, claim, difference, ratio, trend, value};
use crate::study::claim::Statistic::{Correlation, Crossover, FirstStep};
use crate::study::inference::Region::{Above, Below, Within};
use crate::study::sample::Selector;

const SWITCH: Selector = &[("channel", "switch")];
const SHARED_BRIDGE: Selector = &[("channel", "bridge"), ("placement", "shared")];
const SHARED_SWITCH: Selector = &[("channel", "switch"), ("placement", "shared")];
const APART_BRIDGE: Selector = &[("channel", "bridge"), ("placement", "separate")];
const APART_SWITCH: Selector = &[("channel", "switch"), ("placement", "separate")];
const EMPTY: Figure = Figure {
    source: "",
    title: "",
    x: "",
    series: &[],
    of: &[],
    metrics: &[],
    paper: &[],
};
const ROW: Experiment = Experiment {
    id: "",
    source: "",
    title: "",
    sweep: "",
    needs: &[],
    figures: &[],
    claims: &[],
};
const PLACED: &[&str] = &["placement", "channel"];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X0",
        source: "Table 1",
        title: "channels of their time: layer, protocols, openness, transparency",
        needs: &[Need::Absent(
            "a table, not a measurement; the report has it, with today's channels",
        )],
        ..ROW
    },
    Experiment {
        id: "X1",
        source: "Fig. 2",
        title: "mixes of remote and local traffic",
        sweep: "mix",
        needs: &[Need::SecondHost],
        figures: &[Figure {
            source: "Fig. 2",
            title: "Aggregate UDP throughput by mix remote:local",
            x: "mix",
            series: &["channel"],
            metrics: &["mbit_s"],
            paper: &[
                Curve {
                    name: "native",
                    points: &[("5:0", 956.86)],
                },
                Curve {
                    name: "XenLoop",
                    points: &[("5:0", 956.11), ("4:1", 10779.01), ("0:5", 13668.0)],
                },
            ],
            ..EMPTY
        }],
        claims: &[
            claim(
                "all remote: the switch is within 1 % of native",
                "956.11 / 956.86 Mbit/s",
                ratio(
                    "mbit_s",
                    &[("channel", "switch"), ("mix", "5:0")],
                    &[("channel", "bridge"), ("mix", "5:0")],
                ),
                Within(0.99, 1.01),
            ),
            claim(
                "over the switch, throughput rises with the local share",
                "956 to 13668 Mbit/s",
                trend("mbit_s", SWITCH, "mix"),
                Above(0.0),
            ),
            claim(
                "the first local stream brings the largest step",
                "+1027 % with one in five",
                FirstStep {
                    metric: "mbit_s",
                    of: SWITCH,
                    along: "mix",
                },
                Above(0.0),
            ),
        ],
    },
    Experiment {
        id: "X2",
        source: "Table 2",
        title: "cost of the look-up, streams",
        sweep: "lookup",
        needs: &[Need::SecondHost],
        figures: &[Figure {
            source: "Table 2",
            title: "Remote UDP throughput by message size and residents",
            x: "size",
            series: &["residents"],
            metrics: &["mbit_s"],
            paper: &[
                Curve {
                    name: "native",
                    points: &[
                        ("16", 21.7),
                        ("32", 44.0),
                        ("64", 84.3),
                        ("1K", 934.1),
                        ("16K", 953.0),
                    ],
                },
                Curve {
                    name: "1 lookup",
                    points: &[
                        ("16", 18.7),
                        ("32", 37.4),
                        ("64", 74.9),
                        ("1K", 933.9),
                        ("16K", 951.1),
                    ],
                },
                Curve {
                    name: "10 lookups",
                    points: &[
                        ("16", 16.4),
                        ("32", 29.6),
                        ("64", 58.3),
                        ("1K", 929.4),
                        ("16K", 951.1),
                    ],
                },
            ],
            ..EMPTY
        }],
        claims: &[
            claim(
                "the smallest messages pay for the look-up",
                "-13.8 % at 16 B",
                ratio(
                    "mbit_s",
                    &[("residents", "1"), ("size", "16")],
                    &[("residents", "native"), ("size", "16")],
                ),
                Below(1.0),
            ),
            claim(
                "at 1 KB the look-up costs less than 1 %",
                "-0.2 %",
                ratio(
                    "mbit_s",
                    &[("residents", "1"), ("size", "1K")],
                    &[("residents", "native"), ("size", "1K")],
                ),
                Above(0.99),
            ),
            claim(
                "a longer chain (here: 100,000 residents) costs more than a short one at 16 B",
                "-24.4 % against -13.8 %",
                ratio(
                    "mbit_s",
                    &[("residents", "100000"), ("size", "16")],
                    &[("residents", "1"), ("size", "16")],
                ),
                Below(1.0),
            ),
            claim(
                "at 1 KB 100,000 residents cost less than 1 % over one",
                "-0.5 % with 10 look-ups",
                ratio(
                    "mbit_s",
                    &[("residents", "100000"), ("size", "1K")],
                    &[("residents", "1"), ("size", "1K")],
                ),
                Above(0.99),
            ),
        ],
    },
    Experiment {
        id: "X3",
        source: "Fig. 3",
        title: "cost of the look-up, request and response",
        sweep: "lookup-rr",
        needs: &[Need::SecondHost],
        figures: &[Figure {
            source: "Fig. 3",
            title: "Remote transactions by message size and residents",
            x: "size",
            series: &["residents"],
            metrics: &["trans_s"],
            ..EMPTY
        }],
        claims: &[
            claim(
                "native has the most transactions",
                "- (best at every size)",
                ratio("trans_s", &[("residents", "1")], &[("residents", "native")]),
                Below(1.0),
            ),
            claim(
                "the longest chain has the fewest",
                "- (10 look-ups worst)",
                ratio("trans_s", &[("residents", "100000")], &[("residents", "1")]),
                Below(1.0),
            ),
        ],
    },
    Experiment {
        id: "X4",
        source: "Fig. 4",
        title: "UDP between neighbours on shared and separate cores",
        sweep: "udp",
        needs: &[Need::Cpus(2)],
        figures: &[Figure {
            source: "Fig. 4",
            title: "UDP throughput by message size",
            x: "size",
            series: PLACED,
            metrics: &["mbit_s"],
            ..EMPTY
        }],
        claims: &[
            claim(
                "on a shared core the switch wins from a size S* on",
                "4 KB",
                Crossover {
                    metric: "mbit_s",
                    of: SHARED_SWITCH,
                    to: SHARED_BRIDGE,
                    along: "size",
                },
                Within(1024.0, 16384.0),
            ),
            claim(
                "on separate cores the switch wins at every size",
                "all sizes",
                Crossover {
                    metric: "mbit_s",
                    of: APART_SWITCH,
                    to: APART_BRIDGE,
                    along: "size",
                },
                Below(64.0),
            ),
            claim(
                "native does not care for the placement",
                "- (two like curves)",
                ratio("mbit_s", SHARED_BRIDGE, APART_BRIDGE),
                Within(0.8, 1.25),
            ),
            claim(
                "the switch is faster on separate cores",
                "- (another scale)",
                ratio("mbit_s", APART_SWITCH, SHARED_SWITCH),
                Above(1.0),
            ),
        ],
    },
    Experiment {
        id: "X5",
        source: "Fig. 5",
        title: "use, wait and block of the sender",
        sweep: "udp",
        needs: &[Need::Cpus(2)],
        figures: &[
            Figure {
                source: "Fig. 5",
                title: "(a) sender on a CPU",
                x: "size",
                series: PLACED,
                metrics: &["vm1_use_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "(b) sender waiting",
                x: "size",
                series: PLACED,
                metrics: &["vm1_wait_pct"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "(c) sender blocked",
                x: "size",
                series: PLACED,
                metrics: &["vm1_block_pct"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "separate cores: a native sender waits less than 10 %",
                "< 10 %",
                value("vm1_wait_pct", APART_BRIDGE),
                Below(10.0),
            ),
            claim(
                "separate cores: a sender on the switch waits less than 10 %",
                "< 10 %",
                value("vm1_wait_pct", APART_SWITCH),
                Below(10.0),
            ),
            claim(
                "separate cores: a sender on the switch uses all of its CPU",
                "100 %",
                value("vm1_use_pct", APART_SWITCH),
                Above(90.0),
            ),
            claim(
                "native waits more on a shared core",
                "- (high)",
                difference("vm1_wait_pct", SHARED_BRIDGE, APART_BRIDGE),
                Above(0.0),
            ),
        ],
    },
    Experiment {
        id: "X6",
        source: "Fig. 6",
        title: "switches between VMs",
        sweep: "udp",
        needs: &[Need::Cpus(2)],
        figures: &[Figure {
            source: "Fig. 6",
            title: "Context switches",
            x: "size",
            series: PLACED,
            metrics: &["switches_s"],
            ..EMPTY
        }],
        claims: &[claim(
            "64 B on a shared core: more switches over the switch than native",
            "- (high at small sizes)",
            ratio(
                "switches_s",
                &[
                    ("channel", "switch"),
                    ("placement", "shared"),
                    ("size", "64"),
                ],
                &[
                    ("channel", "bridge"),
                    ("placement", "shared"),
                    ("size", "64"),
                ],
            ),
            Above(1.0),
        )],
    },
    Experiment {
        id: "X7",
        source: "Fig. 7",
        title: "CPU time per execution",
        sweep: "udp",
        needs: &[Need::Cpus(2)],
        figures: &[Figure {
            source: "Fig. 7",
            title: "CPU time per execution of the sender",
            x: "size",
            series: PLACED,
            metrics: &["vm1_us_exec"],
            ..EMPTY
        }],
        claims: &[claim(
            "the more switches, the less CPU time per execution",
            "- (low where Fig. 6 is high)",
            Correlation {
                x: "switches_s",
                y: "vm1_us_exec",
                of: &[],
            },
            Below(0.0),
        )],
    },
    Experiment {
        id: "X7B",
        source: "4.3, text",
        title: "batched notifications (proposed in the paper, measured nowhere)",
        needs: &[Need::Absent(
            "the switch has no setting for the depth of a batch: it adapts by itself",
        )],
        ..ROW
    },
];
