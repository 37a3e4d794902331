//! Paper 000, sections 4.1 and 4.2: channels, mixes of traffic, the look-up. Its "native" is our `bridge`, its shared memory
//! channel our `switch`.

use super::{Curve, Experiment, Figure, Need, claim, ratio, trend};
use crate::study::claim::Statistic::FirstStep;
use crate::study::inference::Region::{Above, Below, Within};
use crate::study::sample::Selector;

const SWITCH: Selector = &[("channel", "switch")];
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
                "ours: at 16 B 100,000 residents cost less than 1 % over one",
                "-10.6 % with 10 look-ups over one",
                ratio(
                    "mbit_s",
                    &[("residents", "100000"), ("size", "16")],
                    &[("residents", "1"), ("size", "16")],
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
];
