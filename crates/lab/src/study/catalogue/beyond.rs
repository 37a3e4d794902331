//! What the studies say in passing, and paper 003's caps: CPU-bound jobs, more CPUs, less of one.

use super::{Experiment, Figure, Need, claim, ratio, trend};
use crate::study::inference::Region::{Above, Below};

const EMPTY: Figure = Figure {
    source: "",
    title: "",
    x: "",
    series: &[],
    of: &[],
    metrics: &[],
    paper: &[],
};

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X15",
        source: "4.4, text",
        title: "streams beside a CPU-bound job",
        sweep: "burner",
        needs: &[Need::Cpus(2)],
        figures: &[Figure {
            source: "4.4, text",
            title: "Throughput by where a CPU-bound job runs",
            x: "job",
            series: &["channel", "traffic"],
            metrics: &["mbit_s"],
            ..EMPTY
        }],
        claims: &[
            claim(
                "with a CPU-bound job in the sender the switch is no better than native",
                "- (\"not switching to shared memory\")",
                ratio(
                    "mbit_s",
                    &[("channel", "switch"), ("job", "sender")],
                    &[("channel", "bridge"), ("job", "sender")],
                ),
                Below(1.0),
            ),
            claim(
                "with a CPU-bound job in the receiver the switch is no better than native",
                "- (\"not switching to shared memory\")",
                ratio(
                    "mbit_s",
                    &[("channel", "switch"), ("job", "receiver")],
                    &[("channel", "bridge"), ("job", "receiver")],
                ),
                Below(1.0),
            ),
        ],
    },
    Experiment {
        id: "N3",
        source: "Fig. 3",
        title: "a stream under a CPU cap, on the guest alone or on its whole QEMU",
        sweep: "caps",
        needs: &[Need::Groups],
        figures: &[
            Figure {
                source: "Fig. 3",
                title: "Throughput by cap (percent of a CPU)",
                x: "cap",
                series: &["scope"],
                metrics: &["mbit_s"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 3",
                title: "Coefficient of variation over 100 ms by cap",
                x: "cap",
                series: &["scope"],
                metrics: &["cov"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "the lower the cap on the whole VM, the lower the throughput",
                "- (lower mean)",
                trend("mbit_s", &[("scope", "whole")], "cap"),
                Above(0.0),
            ),
            claim(
                "the lower the cap on the whole VM, the more it varies",
                "- (higher variance)",
                trend("cov", &[("scope", "whole")], "cap"),
                Below(0.0),
            ),
        ],
    },
];
