//! Sweeps of streams and requests: paper 000.

use super::sweep::{Factor, Sweep, fixed};

/// The sweep for which the testbed boots its VMs again, to count their instructions.
pub const INSTRUCTIONS: &str = "direct-instructions";

const CHANNEL: Factor = fixed("channel", &["bridge", "switch"]);
const POWERS: [&str; 10] = [
    "64", "128", "256", "512", "1K", "2K", "4K", "8K", "16K", "32K",
];
const TRAFFIC: [&str; 7] = [
    "tcp 64",
    "tcp 32K",
    "udp 64",
    "udp 32K",
    "udp burst",
    "all pairs",
    "a VM dies",
];
/// The levels of [`TRAFFIC`], with more numbers of pairs between one and the most that fit on the host.
const MANY_PAIRS: [&str; 9] = [
    "tcp 64",
    "tcp 32K",
    "udp 64",
    "udp 32K",
    "udp burst",
    "2 pairs",
    "4 pairs",
    "all pairs",
    "a VM dies",
];
const PAIR: [&str; 3] = ["vm1", "vm2", "backend"];

/// The sweeps, in the order in which they are run; the A/A run is the first.
pub(super) static SWEEPS: &[Sweep] = &[
    Sweep {
        name: "noise",
        title: "A/A: the same TCP stream under two names",
        factors: &[fixed("arm", &["a", "b"])],
        metrics: &["mbit_s"],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "mix",
        title: "five UDP streams of 1 KB, some to the second host, some to the neighbour",
        factors: &[
            CHANNEL,
            Factor {
                name: "mix",
                ci: &["5:0", "4:1", "0:5"],
                default: &MIXES,
                full: &MIXES,
            },
        ],
        metrics: &[
            "mbit_s",
            "remote_mbit_s",
            "local_mbit_s",
            "switches_s",
            "vm_switches_s",
        ],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "lookup",
        title: "a UDP stream to the second host, then requests over TCP and UDP, by FDB look-ups a frame",
        factors: &[LOOK_UPS, LOOKUP_SIZES],
        metrics: &[
            "mbit_s",
            "loss_pct",
            "trans_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "udp_trans_s",
            "udp_p50_us",
            "udp_p99_us",
            "udp_p999_us",
            "lookup_ns",
            "lookup_pct",
            "switches_s",
            "vm_switches_s",
        ],
        sets: &PAIR,
        cost: 3.6,
    },
    Sweep {
        name: "udp",
        title: "a UDP stream between neighbours",
        factors: &[
            fixed("placement", &["shared", "separate"]),
            CHANNEL,
            Factor {
                name: "size",
                ci: &["64", "1K", "32K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &["mbit_s", "loss_pct", "switches_s", "vm_switches_s"],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "gather",
        title: "a UDP stream, then requests, between neighbours on one core, by µs of the switch's interrupt moderation",
        factors: &[
            Factor {
                name: "gather",
                ci: &["native", "0", "200"],
                default: &MODERATION_US,
                full: &MODERATION_US,
            },
            Factor {
                name: "size",
                ci: &["64", "4K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &[
            "mbit_s",
            "loss_pct",
            "switches_s",
            "vm_switches_s",
            "p50_us",
            "p99_us",
            "p999_us",
        ],
        sets: &PAIR,
        cost: 2.5,
    },
    Sweep {
        name: "tcp-runs",
        title: "short TCP streams of 1 KB messages between neighbours on one core, one after the other",
        factors: &[CHANNEL],
        metrics: &["mbit_s", "cov", "slow_fast"],
        sets: &[],
        cost: 3.0,
    },
    Sweep {
        name: "tcp",
        title: "a TCP stream between neighbours on separate cores",
        factors: &[
            CHANNEL,
            Factor {
                name: "size",
                ci: &["64", "1K", "32K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &["mbit_s", "switches_s", "vm_switches_s"],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "two-cpus",
        title: "a UDP stream over the switch, the sender with one virtual CPU or two",
        factors: &[
            fixed("cpus", &["1", "2"]),
            Factor {
                name: "size",
                ci: &["64", "1K"],
                default: &["64", "256", "1K", "4K", "16K", "32K"],
                full: &POWERS,
            },
        ],
        metrics: &["mbit_s", "loss_pct", "switches_s", "vm_switches_s"],
        sets: &PAIR,
        cost: 1.3,
    },
    Sweep {
        name: "profile",
        title: "functions of the sending guest's kernel during a TCP stream over the switch, on separate cores",
        factors: &[fixed("size", &["1K", "32K"])],
        metrics: &["mbit_s", "copy_pct", "message_pct", "driver_pct", "hits"],
        sets: &[],
        cost: 2.7,
    },
    Sweep {
        name: "burner",
        title: "a stream between neighbours on separate cores, a CPU-bound job in one of them",
        factors: &[
            CHANNEL,
            fixed("job", &["none", "sender", "receiver"]),
            Factor {
                name: "traffic",
                ci: &["udp 1K"],
                default: &["udp 1K", "tcp 32K"],
                full: &["udp 1K", "tcp 1K", "udp 32K", "tcp 32K"],
            },
        ],
        metrics: &["mbit_s", "loss_pct", "switches_s", "vm_switches_s"],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "caps",
        title: "a TCP stream over the bridge, the sender's guest or its whole QEMU under a cap (percent of a CPU)",
        factors: &[
            fixed("scope", &["guest", "whole"]),
            Factor {
                name: "cap",
                ci: &["25", "100"],
                default: &["25", "50", "75", "100"],
                full: &["25", "50", "75", "100"],
            },
        ],
        metrics: &[
            "mbit_s",
            "cov",
            "throttled_pct",
            "switches_s",
            "vm_switches_s",
        ],
        sets: &PAIR,
        cost: 1.0,
    },
    Sweep {
        name: "boundary",
        title: "each channel at its boundaries",
        factors: &[
            CHANNEL,
            Factor {
                name: "traffic",
                ci: &["tcp 32K", "udp 64", "udp burst", "all pairs", "a VM dies"],
                default: &TRAFFIC,
                full: &MANY_PAIRS,
            },
        ],
        metrics: &["mbit_s", "cov", "worst", "recovery_ms", "vms"],
        sets: &[],
        cost: 1.2,
    },
    Sweep {
        name: "direct",
        title: "a stream between neighbours on separate cores, over each channel",
        factors: &[CHANNELS_OF_SWEEP, PROTOCOL, DIRECT_SIZES],
        metrics: &[
            "mbit_s",
            "loss_pct",
            "switches_s",
            "vm_switches_s",
            "backend_s_gb",
            "cpu_s_gb",
            "bells",
        ],
        sets: &PAIR,
        cost: 1.1,
    },
    Sweep {
        name: "direct-requests",
        title: "requests between neighbours on separate cores, over each channel",
        factors: &[CHANNELS_OF_SWEEP, PROTOCOL, DIRECT_SIZES],
        metrics: &["trans_s", "p50_us", "p99_us", "p999_us"],
        sets: &[],
        cost: 1.0,
    },
    Sweep {
        name: "direct-boundary",
        title: "the direct channel at its boundaries",
        factors: &[
            fixed("channel", &["direct"]),
            Factor {
                name: "traffic",
                ci: &["tcp 32K", "a VM dies"],
                default: &PAIRS_TRAFFIC,
                full: &PAIRS_TRAFFIC,
            },
        ],
        metrics: &["mbit_s", "cov", "worst", "recovery_ms"],
        sets: &[],
        cost: 1.5,
    },
];

/// The streams of `direct`, between VMs whose instructions are counted.
pub(super) static COUNTED: Sweep = Sweep {
    name: INSTRUCTIONS,
    title: "instructions of guests that send each other a stream, over each channel",
    factors: &[CHANNELS_OF_SWEEP, PROTOCOL, DIRECT_SIZES],
    metrics: &["mbit_s", "instructions_kb"],
    sets: &[],
    cost: 1.1,
};

const CHANNELS_OF_SWEEP: Factor = fixed("channel", &["bridge", "switch", "direct"]);
const PROTOCOL: Factor = fixed("protocol", &["tcp", "udp"]);
const DIRECT_SIZES: Factor = Factor {
    name: "size",
    ci: &["64", "16K"],
    default: &["64", "1K", "4K", "16K", "32K"],
    full: &POWERS,
};
/// What two VMs can do alone: the direct channel joins no more.
const PAIRS_TRAFFIC: [&str; 6] = [
    "tcp 64",
    "tcp 32K",
    "udp 64",
    "udp 32K",
    "udp burst",
    "a VM dies",
];
const MODERATION_US: [&str; 4] = ["native", "0", "200", "1000"];
const MIXES: [&str; 6] = ["5:0", "4:1", "3:2", "2:3", "1:4", "0:5"];
/// Number of look-ups for each frame. `1@100000` is one look-up among 100,000 FDB entries; the other levels have a
/// handful of entries.
const LOOK_UPS: Factor = Factor {
    name: "look-ups",
    ci: &["native", "1", "10", "100", "1@100000"],
    default: &CHAINS,
    full: &CHAINS,
};
const CHAINS: [&str; 6] = ["native", "1", "10", "100", "1@10000", "1@100000"];
/// iperf3 and sockperf send at least 16 bytes. A message of 4 bytes would be sent in a frame of the same length, 60
/// bytes.
const LOOKUP_SIZES: Factor = Factor {
    name: "size",
    ci: &["16", "1K"],
    default: &["16", "1K", "16K"],
    full: &["16", "32", "64", "1K", "16K"],
};
