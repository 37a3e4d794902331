//! Experiments of paper 003: computing and sending in one VM, and a space that sends instead of the VM.

use super::experiment::{Experiment, Figure, Requirement, claim, difference, ratio, trend};
use crate::claim::Statistic::Gap;
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const EMPTY: Figure = Figure {
    x: "mode",
    ..Figure::EMPTY
};
const ROW: Experiment = Experiment {
    sweep: "space",
    needs: &[Requirement::SecondHost, Requirement::Cpus(2)],
    ..Experiment::EMPTY
};
const STREAM: Selector = &[("mode", "stream")];
const JOB: Selector = &[("mode", "job")];
const BOTH: Selector = &[("mode", "both")];
const PROTECTED: Selector = &[("mode", "protected")];
const SPACE: Selector = &[("mode", "space")];
const SPACE_JOB: Selector = &[("mode", "space job")];
const SPACE_STREAM: Selector = &[("mode", "space stream")];
const CONTROLLED: Selector = &[("control", "on")];
const CONTROLLED_MOST: Selector = &[("control", "on"), ("rate", "8")];
const FIXED: Selector = &[("control", "off")];
const SHORT: Selector = &[("job", "compress")];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "N1",
        source: "Fig. 1",
        title: "a stream from a VM that computes meanwhile",
        figures: &[Figure {
            source: "Fig. 1",
            title: "Throughput over time, beside compressing",
            x: "ms",
            series: &["mode"],
            of: SHORT,
            metrics: &["mbit_s"],
            ..EMPTY
        }],
        claims: &[
            claim(
                "while the VM computes the stream is slower",
                "190 to 115 Mbit/s (-40 %)",
                ratio("mbit_s", BOTH, STREAM),
                Below(1.0),
            ),
            claim(
                "and it varies more",
                "- (\"high variance\")",
                difference("cov", BOTH, STREAM),
                Above(0.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "N2",
        source: "Fig. 2",
        title: "jobs in a VM that streams meanwhile",
        figures: &[Figure {
            source: "Fig. 2",
            title: "Completion of a job, by how much it computes",
            x: "job",
            series: &["mode"],
            metrics: &["job_s"],
            ..EMPTY
        }],
        claims: &[claim(
            "while the VM streams jobs take longer",
            "+10 to 18 %",
            ratio("job_s", BOTH, JOB),
            Above(1.0),
        )],
        ..ROW
    },
    Experiment {
        id: "N3",
        source: "Fig. 3",
        title: "a stream under a CPU cap, on the guest alone or on its whole QEMU",
        sweep: "caps",
        needs: &[Requirement::Groups],
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
    Experiment {
        id: "N4",
        source: "Fig. 4",
        title: "energy of streaming, transcoding and both, on bare metal and in a VM",
        sweep: "",
        needs: &[Requirement::Absent(
            "it compares energy on bare metal and in a VM: that needs a meter, and guests that the \
             processor runs; N9 has CPU time for each GB",
        )],
        ..ROW
    },
    Experiment {
        id: "N5",
        source: "Figs. 6, 7",
        title: "jobs with a space that streams instead of the VM",
        figures: &[
            Figure {
                source: "Fig. 6",
                title: "Completion of a transcoding",
                x: "job",
                series: &["mode"],
                metrics: &["job_s"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 7",
                title: "Completion of a compression",
                of: SHORT,
                metrics: &["job_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "with the space jobs are shorter than beside a stream of the VM's own",
                "-27 %",
                ratio("job_s", SPACE, BOTH),
                Below(0.73),
            ),
            claim(
                "they take as long as without a stream",
                "- (about equal)",
                ratio("job_s", SPACE, JOB),
                Below(1.05),
            ),
            claim(
                "ours: the space's sending costs them nothing, beside their writing into it",
                "-",
                ratio("job_s", SPACE, SPACE_JOB),
                Below(1.05),
            ),
            claim(
                "ours: and are shorter than with a protected backend",
                "-",
                ratio("job_s", SPACE, PROTECTED),
                Below(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "N6",
        source: "Fig. 8",
        title: "memory of a space by the rate of jobs, with the controller and without",
        sweep: "space-memory",
        needs: &[],
        figures: &[
            Figure {
                source: "Fig. 8",
                title: "Memory by jobs a second",
                x: "rate",
                series: &["control"],
                metrics: &["mib", "idle_mib"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 8",
                title: "Slots by jobs a second",
                x: "rate",
                series: &["control"],
                metrics: &["slots", "used"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "with the controller its memory rises with the rate",
                "- (rises)",
                trend("mib", CONTROLLED, "rate"),
                Above(0.0),
            ),
            claim(
                "ours: so do its slots, beside a VM whose rate stays",
                "-",
                trend("slots", CONTROLLED, "rate"),
                Above(0.0),
            ),
            claim(
                "the controller takes memory back when there are no jobs",
                "- (\"moderate\")",
                Gap {
                    metric: "idle_mib",
                    to: "mib",
                    of: CONTROLLED_MOST,
                },
                Below(0.0),
            ),
            claim(
                "ours: writing takes as long as with more slots than are needed",
                "-",
                ratio("write_ms", CONTROLLED, FIXED),
                Below(1.1),
            ),
        ],
    },
    Experiment {
        id: "N7",
        source: "Fig. 9",
        title: "throughput with a space, without, and with a protected backend",
        needs: &[
            Requirement::SecondHost,
            Requirement::Cpus(2),
            Requirement::Groups,
        ],
        figures: &[
            Figure {
                source: "Fig. 9",
                title: "Distribution of the throughput of 100 ms",
                metrics: &["mbit_p10", "mbit_p50", "mbit_p90"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 9",
                title: "Mean throughput, by job",
                x: "job",
                series: &["mode"],
                metrics: &["mbit_s"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "with the space a stream beside a job is faster",
                "153 to 260 Mbit/s (+70 %)",
                ratio("mbit_s", SPACE, BOTH),
                Above(1.7),
            ),
            claim(
                "at least as fast as the VM's own without a job",
                "- (above)",
                ratio("mbit_s", SPACE, STREAM),
                Above(0.95),
            ),
            claim(
                "ours: and faster than the VM's own with a protected backend",
                "-",
                ratio("mbit_s", SPACE, PROTECTED),
                Above(1.0),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "N8",
        source: "Fig. 10",
        title: "what a space's throughput costs, beside a job",
        needs: &[
            Requirement::SecondHost,
            Requirement::Cpus(2),
            Requirement::Energy,
        ],
        figures: &[
            Figure {
                source: "Fig. 10",
                title: "Throughput over time, beside compressing",
                x: "ms",
                series: &["mode"],
                of: SHORT,
                metrics: &["mbit_s"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 10",
                title: "CPU of guest and backend, which has the space's process",
                x: "job",
                series: &["mode"],
                metrics: &["cpu_pct"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "more throughput",
                "+110 Mbit/s",
                difference("mbit_s", SPACE, BOTH),
                Above(0.0),
            ),
            claim(
                "a job that completes earlier",
                "26 s, 29 s",
                ratio("job_s", SPACE, BOTH),
                Below(1.0),
            ),
            claim(
                "for about as much CPU time",
                "- (slightly more power)",
                ratio("cpu_pct", SPACE, BOTH),
                Within(0.8, 1.25),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "N9",
        source: "Fig. 11",
        title: "CPU time for what clients get (a client of the paper gets 2 Mbit/s)",
        needs: &[
            Requirement::SecondHost,
            Requirement::Cpus(2),
            Requirement::Energy,
        ],
        figures: &[Figure {
            source: "Fig. 11",
            title: "CPU time of guest and backend for each GB",
            x: "job",
            series: &["mode"],
            metrics: &["cpu_s_gb"],
            ..EMPTY
        }],
        claims: &[
            claim(
                "beside a job, a client costs less with the space",
                "32 % better",
                ratio("cpu_s_gb", SPACE, BOTH),
                Below(0.76),
            ),
            claim(
                "without a job, too",
                "- (less)",
                ratio("cpu_s_gb", SPACE_STREAM, STREAM),
                Below(1.0),
            ),
        ],
        ..ROW
    },
];
