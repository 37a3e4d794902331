//! Experiments on statements that the papers make only in their text: streams beside a CPU-bound job.

use super::experiment::{Experiment, Figure, Requirement, claim, ratio};
use report::inference::Region::Below;

pub(super) static ROWS: &[Experiment] = &[Experiment {
    id: "X15",
    source: "4.4, text",
    title: "streams beside a CPU-bound job",
    sweep: "burner",
    needs: &[Requirement::Cpus(2)],
    figures: &[Figure {
        source: "4.4, text",
        title: "Throughput by where a CPU-bound job runs",
        x: "job",
        series: &["channel", "traffic"],
        metrics: &["mbit_s"],
        ..Figure::EMPTY
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
}];
