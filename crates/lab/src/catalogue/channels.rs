//! Experiments of paper 000, section 4.1: channels, and mixes of traffic. The paper's "native" corresponds to the
//! channel `bridge`, and its shared memory channel to `switch`.

use super::experiment::{Curve, Experiment, Figure, Requirement, claim, ratio};
use crate::claim::Statistic::{FirstStep, LeastStep};
use crate::sample::Selector;
use report::inference::Region::{Above, Within};

const SWITCH: Selector = &[("channel", "switch")];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X0",
        source: "Table 1",
        title: "channels of their time: layer, protocols, openness, transparency",
        needs: &[Requirement::Absent(
            "a table: nothing is measured. The report has it, with today's channels",
        )],
        ..Experiment::EMPTY
    },
    Experiment {
        id: "X1",
        source: "Fig. 2",
        title: "mixes of remote and local traffic",
        sweep: "mix",
        needs: &[Requirement::SecondHost],
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
            ..Figure::EMPTY
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
                "over the switch, throughput rises with every local share",
                "956 to 13668 Mbit/s",
                LeastStep {
                    metric: "mbit_s",
                    of: SWITCH,
                    along: "mix",
                },
                Above(1.0),
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
];
