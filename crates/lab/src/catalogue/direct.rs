//! Experiments of paper 002 (MMNet), section 4: the direct channel. The paper's MMNet corresponds to the channel
//! `direct`, its netfront to `bridge`, and XenLoop, with which the paper compares, to `switch`.

use super::experiment::{Experiment, Figure, Requirement, claim, ratio, value};
use crate::claim::Claim;
use crate::claim::Statistic::Growth;
use crate::sample::Selector;
use report::inference::Region::{Above, Below};

const DIRECT: Selector = &[("channel", "direct")];
const SWITCH: Selector = &[("channel", "switch")];
const TCP: Selector = &[("protocol", "tcp")];
const UDP: Selector = &[("protocol", "udp")];
const TCP_DIRECT: Selector = &[("channel", "direct"), ("protocol", "tcp")];
const TCP_SWITCH: Selector = &[("channel", "switch"), ("protocol", "tcp")];
const TCP_BRIDGE: Selector = &[("channel", "bridge"), ("protocol", "tcp")];
const UDP_DIRECT: Selector = &[("channel", "direct"), ("protocol", "udp")];
const UDP_SWITCH: Selector = &[("channel", "switch"), ("protocol", "udp")];
const UDP_BRIDGE: Selector = &[("channel", "bridge"), ("protocol", "udp")];
const BULK_DIRECT: Selector = &[("channel", "direct"), ("protocol", "tcp"), ("size", "16K")];
const BULK_SWITCH: Selector = &[("channel", "switch"), ("protocol", "tcp"), ("size", "16K")];
const BULK_BRIDGE: Selector = &[("channel", "bridge"), ("protocol", "tcp"), ("size", "16K")];
const SMALL: Selector = &[("protocol", "tcp"), ("size", "64")];
const LARGE: Selector = &[("protocol", "tcp"), ("size", "16K")];
const ROW: Experiment = Experiment {
    sweep: "direct",
    needs: &[
        Requirement::Cpus(2),
        Requirement::Spread(3),
        Requirement::Module,
    ],
    ..Experiment::EMPTY
};
const EMPTY: Figure = Figure {
    x: "size",
    series: &["channel"],
    metrics: &["mbit_s"],
    ..Figure::EMPTY
};

/// Claims that the cells `of` have a higher throughput than the cells `to`, over all sizes together.
const fn more(text: &'static str, paper: &'static str, of: Selector, to: Selector) -> Claim {
    claim(text, paper, ratio("mbit_s", of, to), Above(1.0))
}

/// Claims that a bulk TCP stream over the direct channel uses less CPU time for each gigabyte than one of the cells
/// `to`.
const fn cheaper(text: &'static str, to: Selector) -> Claim {
    claim(
        text,
        "- (better)",
        ratio("cpu_s_gb", BULK_DIRECT, to),
        Below(1.0),
    )
}

/// Claims that the guests execute fewer instructions for each kilobyte of a bulk TCP stream over the direct channel
/// than in the cells `to`.
const fn fewer(text: &'static str, to: Selector) -> Claim {
    claim(
        text,
        "-",
        ratio("instructions_kb", BULK_DIRECT, to),
        Below(1.0),
    )
}

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "M2",
        source: "Fig. 2",
        title: "TCP throughput by channel",
        figures: &[Figure {
            source: "Fig. 2",
            title: "TCP throughput by message size",
            of: TCP,
            ..EMPTY
        }],
        claims: &[
            more(
                "the direct channel carries more TCP than native",
                "- (better)",
                TCP_DIRECT,
                TCP_BRIDGE,
            ),
            more(
                "the direct channel carries more TCP than the switch",
                "- (better than XenLoop)",
                TCP_DIRECT,
                TCP_SWITCH,
            ),
            claim(
                "ours: in bulk (16 KB) 1.5 times native's",
                "-",
                ratio("mbit_s", BULK_DIRECT, BULK_BRIDGE),
                Above(1.5),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "M3",
        source: "Fig. 3",
        title: "UDP throughput by channel",
        figures: &[Figure {
            source: "Fig. 3",
            title: "UDP throughput by message size",
            of: UDP,
            ..EMPTY
        }],
        claims: &[
            more(
                "the direct channel carries more UDP than native",
                "- (better)",
                UDP_DIRECT,
                UDP_BRIDGE,
            ),
            more(
                "the direct channel carries more UDP than the switch",
                "- (better than XenLoop)",
                UDP_DIRECT,
                UDP_SWITCH,
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "M4",
        source: "Fig. 4",
        title: "latency by channel",
        sweep: "direct-requests",
        figures: &[
            Figure {
                source: "Fig. 4",
                title: "TCP round trip by request size, median",
                of: TCP,
                metrics: &["p50_us"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 4",
                title: "UDP round trip by request size, median",
                of: UDP,
                metrics: &["p50_us"],
                ..EMPTY
            },
        ],
        claims: &[
            claim(
                "a round trip over the direct channel is shorter than over native",
                "about half (\"two times better\")",
                ratio("p50_us", TCP_DIRECT, TCP_BRIDGE),
                Below(1.0),
            ),
            claim(
                "ours: no longer than over the switch",
                "-",
                ratio("p50_us", TCP_DIRECT, TCP_SWITCH),
                Below(1.0),
            ),
            claim(
                "from 64 B to 16 KB it grows no more than over the switch, which copies as often",
                "- (\"does not deteriorate with request size\", as XenLoop's does)",
                Growth {
                    metric: "p50_us",
                    of: DIRECT,
                    to: SWITCH,
                    from: SMALL,
                    at: LARGE,
                },
                Below(1.05),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "M5",
        source: "Fig. 5",
        title: "CPU time, normalised by throughput",
        figures: &[
            Figure {
                source: "Fig. 5",
                title: "CPU time of guests and backend for each GB, 16 KB messages",
                x: "channel",
                series: &["protocol"],
                of: &[("size", "16K")],
                metrics: &["cpu_s_gb"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "The backend's part of it",
                x: "channel",
                series: &["protocol"],
                of: &[("size", "16K")],
                metrics: &["backend_s_gb"],
                ..EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "Doorbells for each packet of the direct channel",
                series: &["protocol"],
                of: DIRECT,
                metrics: &["bells"],
                ..EMPTY
            },
        ],
        claims: &[
            cheaper("the direct channel is cheaper than native", BULK_BRIDGE),
            cheaper("the direct channel is cheaper than the switch", BULK_SWITCH),
            claim(
                "ours: the host's part is a fifth of native's",
                "-",
                ratio("backend_s_gb", BULK_DIRECT, BULK_BRIDGE),
                Below(0.2),
            ),
            claim(
                "ours: in bulk less than one packet in ten rings a doorbell",
                "-",
                value("bells", BULK_DIRECT),
                Below(0.1),
            ),
        ],
        ..ROW
    },
    Experiment {
        id: "M6",
        source: "3, text",
        title: "the direct channel at its boundaries (as X14)",
        sweep: "direct-boundary",
        needs: &[Requirement::Cpus(2), Requirement::Module],
        figures: &[
            Figure {
                source: "3, text",
                title: "Coefficient of variation over 100 ms",
                x: "traffic",
                metrics: &["cov"],
                ..EMPTY
            },
            Figure {
                source: "3, text",
                title: "Longest standstill of a stream when a member dies",
                x: "channel",
                series: &[],
                of: &[("traffic", "a VM dies")],
                metrics: &["recovery_ms"],
                ..EMPTY
            },
        ],
        claims: &[claim(
            "a member's death stops a stream between two others for less than 200 ms",
            "-",
            value("recovery_ms", &[("traffic", "a VM dies")]),
            Below(200.0),
        )],
    },
    Experiment {
        id: "M7",
        source: "ours",
        title: "guests' instructions by channel",
        sweep: super::stream_sweeps::INSTRUCTIONS,
        figures: &[
            Figure {
                source: "ours",
                title: "Instructions of both guests for each KB of TCP by message size",
                of: TCP,
                metrics: &["instructions_kb"],
                ..EMPTY
            },
            Figure {
                source: "ours",
                title: "Instructions of both guests for each KB of UDP by message size",
                of: UDP,
                metrics: &["instructions_kb"],
                ..EMPTY
            },
        ],
        claims: &[
            fewer(
                "guests spend fewer instructions than over native",
                BULK_BRIDGE,
            ),
            fewer(
                "guests spend fewer instructions than over the switch",
                BULK_SWITCH,
            ),
        ],
        ..ROW
    },
];
