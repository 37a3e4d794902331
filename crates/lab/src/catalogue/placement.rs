//! Experiments of paper 000, section 4.3: UDP between VMs of one host on shared and separate cores.

use super::experiment::{
    Experiment, Figure, Requirement, SEPARATE_CPUS, claim, difference, ratio, value,
};
use crate::claim::Statistic::{Correlation, Crossover, Shift};
use crate::sample::Selector;
use report::inference::Region::{Above, Below, Within};

const SHARED_BRIDGE: Selector = &[("channel", "bridge"), ("placement", "shared")];
const SHARED_SWITCH: Selector = &[("channel", "switch"), ("placement", "shared")];
const SHARED_KB: Selector = &[
    ("channel", "bridge"),
    ("placement", "shared"),
    ("size", "1K"),
];
const SHARED_LARGE: Selector = &[
    ("channel", "bridge"),
    ("placement", "shared"),
    ("size", "32K"),
];
const APART_BRIDGE: Selector = &[("channel", "bridge"), ("placement", "separate")];
const APART_SWITCH: Selector = &[("channel", "switch"), ("placement", "separate")];
const SHORT_SHARED_BRIDGE: Selector = &[
    ("channel", "bridge"),
    ("placement", "shared"),
    ("size", "64"),
];
const SHORT_SHARED_SWITCH: Selector = &[
    ("channel", "switch"),
    ("placement", "shared"),
    ("size", "64"),
];
const PLACED: &[&str] = &["placement", "channel"];

pub(super) static ROWS: &[Experiment] = &[
    Experiment {
        id: "X4",
        source: "Fig. 4",
        title: "UDP between neighbours on shared and separate cores",
        sweep: "udp",
        needs: SEPARATE_CPUS,
        figures: &[
            Figure {
                source: "Fig. 4",
                title: "(a) UDP throughput by message size, shared core",
                x: "size",
                series: &["channel"],
                of: &[("placement", "shared")],
                metrics: &["mbit_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 4",
                title: "(b) UDP throughput by message size, separate cores",
                x: "size",
                series: &["channel"],
                of: &[("placement", "separate")],
                metrics: &["mbit_s"],
                ..Figure::EMPTY
            },
        ],
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
                "native's throughput does not depend on the placement",
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
        needs: SEPARATE_CPUS,
        figures: &[
            Figure {
                source: "Fig. 5",
                title: "(a) sender on a CPU",
                x: "size",
                series: PLACED,
                metrics: &["vm1_use_pct"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "(b) sender waiting",
                x: "size",
                series: PLACED,
                metrics: &["vm1_wait_pct"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 5",
                title: "(c) sender blocked",
                x: "size",
                series: PLACED,
                metrics: &["vm1_block_pct"],
                ..Figure::EMPTY
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
            claim(
                "native, shared core: above 1 KB the sender waits less",
                "- (falls)",
                difference("vm1_wait_pct", SHARED_LARGE, SHARED_KB),
                Below(0.0),
            ),
            claim(
                "native, shared core: above 1 KB the sender blocks more",
                "- (rises)",
                difference("vm1_block_pct", SHARED_LARGE, SHARED_KB),
                Above(0.0),
            ),
            claim(
                "native, shared core: above 1 KB the sender uses less",
                "- (falls)",
                difference("vm1_use_pct", SHARED_LARGE, SHARED_KB),
                Below(0.0),
            ),
        ],
    },
    Experiment {
        id: "X6",
        source: "Fig. 6",
        title: "switches between VMs",
        sweep: "udp",
        needs: SEPARATE_CPUS,
        figures: &[
            Figure {
                source: "Fig. 6",
                title: "Switches straight from a VM, or the backend, to another",
                x: "size",
                series: PLACED,
                metrics: &["vm_switches_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "Fig. 6",
                title: "All context switches of guests and backend",
                x: "size",
                series: PLACED,
                metrics: &["switches_s"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "64 B on a shared core: more switches between VMs over the switch than native",
                "- (high at small sizes)",
                ratio("vm_switches_s", SHORT_SHARED_SWITCH, SHORT_SHARED_BRIDGE),
                Above(1.0),
            ),
            claim(
                "64 B on a shared core: more switches of all kinds over the switch than native",
                "- (high at small sizes)",
                ratio("switches_s", SHORT_SHARED_SWITCH, SHORT_SHARED_BRIDGE),
                Above(1.0),
            ),
        ],
    },
    Experiment {
        id: "X7",
        source: "Fig. 7",
        title: "CPU time per execution",
        sweep: "udp",
        needs: SEPARATE_CPUS,
        figures: &[Figure {
            source: "Fig. 7",
            title: "CPU time per execution of the sender",
            x: "size",
            series: PLACED,
            metrics: &["vm1_us_exec"],
            ..Figure::EMPTY
        }],
        claims: &[
            claim(
                "the more switches between VMs, the less CPU time per execution",
                "- (low where Fig. 6 is high)",
                Correlation {
                    x: "vm_switches_s",
                    y: "vm1_us_exec",
                    of: &[],
                },
                Below(0.0),
            ),
            claim(
                "the more switches of all kinds, the less CPU time per execution",
                "- (low where Fig. 6 is high)",
                Correlation {
                    x: "switches_s",
                    y: "vm1_us_exec",
                    of: &[],
                },
                Below(0.0),
            ),
        ],
    },
    Experiment {
        id: "X7B",
        source: "4.3, text",
        title: "batched notifications (proposed in the paper, which has no measurement)",
        sweep: "gather",
        needs: &[Requirement::Cpus(2)],
        figures: &[
            Figure {
                source: "4.3, text",
                title: "UDP throughput on a shared core, by µs of interrupt moderation",
                x: "size",
                series: &["gather"],
                metrics: &["mbit_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "4.3, text",
                title: "Round trip of requests, p99",
                x: "size",
                series: &["gather"],
                metrics: &["p99_us"],
                ..Figure::EMPTY
            },
            Figure {
                source: "4.3, text",
                title: "Context switches",
                x: "size",
                series: &["gather"],
                metrics: &["switches_s"],
                ..Figure::EMPTY
            },
            Figure {
                source: "4.3, text",
                title: "Switches straight from a VM, or the backend, to another",
                x: "size",
                series: &["gather"],
                metrics: &["vm_switches_s"],
                ..Figure::EMPTY
            },
        ],
        claims: &[
            claim(
                "interrupt moderation increases the throughput of the smallest messages",
                "- (proposed)",
                ratio(
                    "mbit_s",
                    &[("gather", "200"), ("size", "64")],
                    &[("gather", "0"), ("size", "64")],
                ),
                Above(1.0),
            ),
            claim(
                "it saves switches between VMs",
                "- (proposed)",
                ratio("vm_switches_s", &[("gather", "200")], &[("gather", "0")]),
                Below(1.0),
            ),
            claim(
                "it saves switches of all kinds",
                "- (proposed)",
                ratio("switches_s", &[("gather", "200")], &[("gather", "0")]),
                Below(1.0),
            ),
            claim(
                "ours: S* with interrupt moderation",
                "below the 4 KB of Fig. 4",
                Crossover {
                    metric: "mbit_s",
                    of: &[("gather", "200")],
                    to: &[("gather", "native")],
                    along: "size",
                },
                Below(4096.0),
            ),
            claim(
                "ours: S* without it",
                "4 KB (Fig. 4)",
                Crossover {
                    metric: "mbit_s",
                    of: &[("gather", "0")],
                    to: &[("gather", "native")],
                    along: "size",
                },
                Within(1024.0, 16384.0),
            ),
            claim(
                "ours: interrupt moderation moves S* down",
                "- (proposed)",
                Shift {
                    metric: "mbit_s",
                    of: &[("gather", "200")],
                    from: &[("gather", "0")],
                    to: &[("gather", "native")],
                    along: "size",
                },
                Below(1.0),
            ),
            claim(
                "ours: requests and responses do not wait for it (p99)",
                "-",
                ratio("p99_us", &[("gather", "200")], &[("gather", "0")]),
                Below(1.1),
            ),
        ],
    },
];
