//! Experiments of paper 000, section 4.2: the cost, for traffic to a remote host, of looking up the receiver of each
//! frame.

use super::experiment::{Curve, Experiment, Figure, Requirement, claim, ratio, value};
use crate::claim::Claim;
use crate::claim::Statistic::Relative;
use crate::sample::Selector;
use report::inference::Region::{Above, Below};

const NATIVE: Selector = &[("look-ups", "native")];
const ONE: Selector = &[("look-ups", "1")];
const TEN: Selector = &[("look-ups", "10")];
const HUNDRED: Selector = &[("look-ups", "100")];
const SHORT_NATIVE: Selector = &[("look-ups", "native"), ("size", "16")];
const SHORT_ONE: Selector = &[("look-ups", "1"), ("size", "16")];
const SHORT_TEN: Selector = &[("look-ups", "10"), ("size", "16")];
const SHORT_HUNDRED: Selector = &[("look-ups", "100"), ("size", "16")];
const SHORT_MANY: Selector = &[("look-ups", "1@10000"), ("size", "16")];
const SHORT_MOST: Selector = &[("look-ups", "1@100000"), ("size", "16")];
const KB_NATIVE: Selector = &[("look-ups", "native"), ("size", "1K")];
const KB_ONE: Selector = &[("look-ups", "1"), ("size", "1K")];
const KB_TEN: Selector = &[("look-ups", "10"), ("size", "1K")];
const KB_HUNDRED: Selector = &[("look-ups", "100"), ("size", "1K")];
const KB_MANY: Selector = &[("look-ups", "1@10000"), ("size", "1K")];
const KB_MOST: Selector = &[("look-ups", "1@100000"), ("size", "1K")];
const LONG_NATIVE: Selector = &[("look-ups", "native"), ("size", "16K")];
const LONG_ONE: Selector = &[("look-ups", "1"), ("size", "16K")];
const EMPTY: Figure = Figure {
    x: "size",
    series: &["look-ups"],
    ..Figure::EMPTY
};

/// Claims that a stream of the cells `of` has more than 99 % of the throughput of the cells `to`.
const fn keeps_throughput(
    text: &'static str,
    paper: &'static str,
    of: Selector,
    to: Selector,
) -> Claim {
    claim(text, paper, ratio("mbit_s", of, to), Above(0.99))
}

/// Claims that look-ups take less than one percent of the time.
const fn is_cheap(text: &'static str, paper: &'static str, of: Selector) -> Claim {
    claim(text, paper, value("lookup_pct", of), Below(1.0))
}

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X2",
        source: "Table 2",
        title: "cost of the look-up, streams",
        sweep: "lookup",
        needs: &[Requirement::SecondHost],
        figures: &[
            Figure {
                source: "Table 2",
                title: "UDP throughput to the second host by message size and look-ups",
                metrics: &["mbit_s"],
                paper: &[
                    Curve {
                        name: "native",
                        points: &[
                            ("4", 5.58),
                            ("16", 21.7),
                            ("32", 44.0),
                            ("64", 84.3),
                            ("1K", 934.1),
                            ("16K", 953.0),
                        ],
                    },
                    Curve {
                        name: "1 look-up",
                        points: &[
                            ("4", 5.42),
                            ("16", 18.7),
                            ("32", 37.4),
                            ("64", 74.9),
                            ("1K", 933.9),
                            ("16K", 951.1),
                        ],
                    },
                    Curve {
                        name: "10 look-ups",
                        points: &[
                            ("4", 5.04),
                            ("16", 16.4),
                            ("32", 29.6),
                            ("64", 58.3),
                            ("1K", 929.4),
                            ("16K", 951.1),
                        ],
                    },
                ],
                ..EMPTY
            },
            Figure {
                source: "Table 2",
                title: "Part of the time between two messages that look-ups take",
                metrics: &["lookup_pct"],
                paper: &[
                    Curve {
                        name: "1 look-up (lost throughput)",
                        points: &[
                            ("4", 3.0),
                            ("16", 13.8),
                            ("32", 15.0),
                            ("64", 11.1),
                            ("1K", 0.2),
                            ("16K", 0.2),
                        ],
                    },
                    Curve {
                        name: "10 look-ups (lost throughput)",
                        points: &[
                            ("4", 9.7),
                            ("16", 24.4),
                            ("32", 32.7),
                            ("64", 30.8),
                            ("1K", 0.5),
                            ("16K", 0.0),
                        ],
                    },
                ],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "the smallest messages pay for the look-up",
                "-13.8 % at 16 B",
                ratio("mbit_s", SHORT_ONE, SHORT_NATIVE),
                Below(1.0),
            ),
            keeps_throughput(
                "at 1 KB the look-up costs less than 1 %",
                "-0.2 %",
                KB_ONE,
                KB_NATIVE,
            ),
            keeps_throughput(
                "at 16 KB the look-up costs less than 1 %",
                "-0.2 %",
                LONG_ONE,
                LONG_NATIVE,
            ),
            claim(
                "ten look-ups cost the smallest messages more than one",
                "-24.4 % against -13.8 % at 16 B",
                ratio("mbit_s", SHORT_TEN, SHORT_ONE),
                Below(1.0),
            ),
            keeps_throughput(
                "at 1 KB ten look-ups cost less than 1 % over one",
                "-0.5 % against -0.2 %",
                KB_TEN,
                KB_ONE,
            ),
            claim(
                "ours: a hundred look-ups cost the smallest messages more than one",
                "-",
                ratio("mbit_s", SHORT_HUNDRED, SHORT_ONE),
                Below(1.0),
            ),
            keeps_throughput(
                "ours: at 1 KB a hundred look-ups cost less than 1 % over one",
                "-",
                KB_HUNDRED,
                KB_ONE,
            ),
            keeps_throughput(
                "ours: at 16 B 10,000 FDB entries cost less than 1 % over a handful",
                "-",
                SHORT_MANY,
                SHORT_ONE,
            ),
            keeps_throughput(
                "ours: at 16 B 100,000 FDB entries cost less than 1 % over a handful",
                "-",
                SHORT_MOST,
                SHORT_ONE,
            ),
            keeps_throughput(
                "ours: at 1 KB 10,000 FDB entries cost less than 1 % over a handful",
                "-",
                KB_MANY,
                KB_ONE,
            ),
            keeps_throughput(
                "ours: at 1 KB 100,000 FDB entries cost less than 1 % over a handful",
                "-",
                KB_MOST,
                KB_ONE,
            ),
            is_cheap(
                "ours: look-ups among a handful take less than 1 % of the time of 16 B messages",
                "-13.8 % with one look-up",
                SHORT_ONE,
            ),
            is_cheap(
                "ours: look-ups among 10,000 take less than 1 % of the time of 16 B messages",
                "-",
                SHORT_MANY,
            ),
            is_cheap(
                "ours: look-ups among 100,000 take less than 1 % of the time of 16 B messages",
                "-",
                SHORT_MOST,
            ),
            is_cheap(
                "ours: ten look-ups of each frame take less than 1 % of the time of 16 B messages",
                "-24.4 % with ten look-ups",
                SHORT_TEN,
            ),
            is_cheap(
                "ours: a hundred look-ups of each frame take less than 1 % of the time of 16 B messages",
                "-",
                SHORT_HUNDRED,
            ),
            is_cheap(
                "ours: look-ups among a handful take less than 1 % of the time of 1 KB messages",
                "-0.2 % with one look-up",
                KB_ONE,
            ),
            is_cheap(
                "ours: look-ups among 10,000 take less than 1 % of the time of 1 KB messages",
                "-",
                KB_MANY,
            ),
            is_cheap(
                "ours: look-ups among 100,000 take less than 1 % of the time of 1 KB messages",
                "-",
                KB_MOST,
            ),
        ],
    },
    Experiment {
        id: "X3",
        source: "Fig. 3",
        title: "cost of the look-up, request and response",
        sweep: "lookup",
        needs: &[Requirement::SecondHost],
        figures: &[
            Figure {
                source: "Fig. 3",
                title: "Transactions with the second host by message size and look-ups",
                metrics: &["trans_s"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 3",
                title: "Round trip, p99",
                metrics: &["p99_us"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 3",
                title: "Transactions with the second host over UDP by message size and look-ups",
                metrics: &["udp_trans_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "native has the most transactions",
                "- (best at every size)",
                ratio("trans_s", ONE, NATIVE),
                Below(1.0),
            ),
            claim(
                "with ten look-ups there are fewer than with one",
                "- (10 look-ups worst)",
                ratio("trans_s", TEN, ONE),
                Below(1.0),
            ),
            claim(
                "ours: with a hundred look-ups there are fewer than with one",
                "-",
                ratio("trans_s", HUNDRED, ONE),
                Below(1.0),
            ),
            claim(
                "over UDP too, native has the most transactions",
                "- (best at every size)",
                ratio("udp_trans_s", ONE, NATIVE),
                Below(1.0),
            ),
            claim(
                "at 1 KB requests lose more by the look-up than the stream does",
                "- (visible at all sizes, unlike the stream's)",
                Relative {
                    metric: "trans_s",
                    than: "mbit_s",
                    of: KB_ONE,
                    to: KB_NATIVE,
                },
                Below(1.0),
            ),
            claim(
                "at 16 KB requests lose more by the look-up than the stream does",
                "- (visible at all sizes, unlike the stream's)",
                Relative {
                    metric: "trans_s",
                    than: "mbit_s",
                    of: LONG_ONE,
                    to: LONG_NATIVE,
                },
                Below(1.0),
            ),
        ],
    },
];
