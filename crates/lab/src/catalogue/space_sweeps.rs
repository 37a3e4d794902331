//! Sweeps of computing and sending in one VM: paper 003.

use super::sweep::{Factor, Sweep};

/// The sweeps, in the order in which they are run.
pub(super) static SWEEPS: &[Sweep] = &[
    Sweep {
        name: "space",
        title: "a server of files and a CPU-bound job in one VM, and the same with its space sending",
        factors: &[
            Factor {
                name: "job",
                ci: &["compress"],
                default: &["compress", "transcode 360", "transcode 720"],
                full: &[
                    "compress",
                    "transcode 360",
                    "transcode 720",
                    "transcode 1080",
                ],
            },
            Factor {
                name: "mode",
                ci: &["stream", "job", "both", "space", "space job"],
                default: &MODES,
                full: &MODES,
            },
        ],
        metrics: &[
            "mbit_s", "mbit_p10", "mbit_p50", "mbit_p90", "cov", "job_s", "cpu_pct", "cpu_s_gb",
        ],
        sets: &["vm1", "backend"],
        cost: 1.6,
    },
    Sweep {
        name: "space-memory",
        title: "jobs a second that each leave 512 KB in a space for a second, beside another VM's four, with the \
            controller and with more slots than they use",
        factors: &[
            Factor {
                name: "rate",
                ci: &["1", "8"],
                default: &["1", "4", "8", "16"],
                full: &["1", "2", "4", "8", "16"],
            },
            Factor {
                name: "control",
                ci: &["on", "off"],
                default: &["on", "off"],
                full: &["on", "off"],
            },
        ],
        metrics: &["slots", "used", "mib", "idle_slots", "idle_mib", "write_ms"],
        sets: &[],
        cost: 6.0,
    },
];

/// The VM's server alone (`stream`), the job alone (`job`), `both`, both with a `protected` backend, and both with the
/// `space` instead of the VM's own server. With the space, each is also measured alone.
const MODES: [&str; 7] = [
    "stream",
    "job",
    "both",
    "protected",
    "space",
    "space job",
    "space stream",
];
