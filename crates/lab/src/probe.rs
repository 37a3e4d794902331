//! Determines which experiments of the catalogue this host can run.

use super::catalogue::{Experiment, Requirement};
use super::settings::{Hierarchy, Version};
use vm_harness::{direct, machine};

/// The abilities of the host.
#[derive(Clone, Debug)]
pub struct Probe {
    /// CPUs that the run may use.
    pub cpus: usize,
    /// The reason why VMs cannot be run, if there is one.
    pub no_vms: Option<String>,
    /// The version of control groups that can set CPU weights and caps, or the reason why neither can.
    pub groups: Result<&'static str, String>,
    /// The reason why the direct channel's module cannot be built, if there is one.
    pub no_module: Option<String>,
    /// The abilities of each version of control groups, in one line.
    pub versions: String,
}

/// Whether an experiment can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// The host can run it as in the paper.
    Runnable,
    /// The host can run it with a substitute, which the text names.
    Emulated(String),
    /// The host cannot run it, for this reason.
    NotRunnable(String),
}

impl Probe {
    /// Probes this host.
    #[must_use]
    pub fn of_this_host() -> Self {
        Self {
            cpus: machine::cpus(),
            no_vms: no_vms(),
            groups: Hierarchy::find()
                .map(|found| found.version().name())
                .map_err(|error| error.to_string()),
            no_module: direct::missing(),
            versions: versions(),
        }
    }

    /// Whether this host can run an experiment.
    #[must_use]
    pub fn judge(&self, row: &Experiment) -> Ability {
        let mut standing_in = Vec::new();
        for need in row.needs {
            match need {
                Requirement::Absent(why) => return Ability::NotRunnable((*why).to_owned()),
                Requirement::Cpus(wanted) if self.cpus < *wanted => {
                    return Ability::NotRunnable(format!(
                        "needs {wanted} CPUs; there are {}",
                        self.cpus
                    ));
                }
                Requirement::Groups => {
                    if let Err(why) = &self.groups {
                        return Ability::NotRunnable(format!("no CPU weights and caps: {why}"));
                    }
                }
                Requirement::Module => {
                    if let Some(why) = &self.no_module {
                        return Ability::NotRunnable(why.clone());
                    }
                }
                Requirement::SecondHost => standing_in.push(
                    "the second host is a network namespace behind a shaped link of 1 Gbit/s"
                        .to_owned(),
                ),
                Requirement::Spread(wanted) if self.cpus < *wanted => standing_in.push(format!(
                    "virtual CPUs and backend share {} CPUs instead of having {wanted}",
                    self.cpus
                )),
                Requirement::Energy => standing_in.push("CPU time stands in for energy".to_owned()),
                Requirement::Cpus(_) | Requirement::Spread(_) => {}
            }
        }
        match (&self.no_vms, standing_in.is_empty()) {
            (Some(why), _) => Ability::NotRunnable(why.clone()),
            (None, true) => Ability::Runnable,
            (None, false) => Ability::Emulated(standing_in.join("; ")),
        }
    }
}

impl Ability {
    /// Returns the word for the report.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Runnable => "RUNNABLE",
            Self::Emulated(_) => "EMULATED",
            Self::NotRunnable(_) => "NOT RUNNABLE",
        }
    }

    /// Returns the reason; empty for [`Ability::Runnable`].
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Runnable => "",
            Self::Emulated(why) | Self::NotRunnable(why) => why,
        }
    }
}

/// Returns the abilities of each version of control groups on this host.
fn versions() -> String {
    let words = Version::ALL.map(|version| {
        let name = version.name();
        match Hierarchy::of(version) {
            Ok(_) => format!("{name} RUNNABLE"),
            Err(why) => format!("{name} NOT RUNNABLE ({why})"),
        }
    });
    format!(
        "CPU weights and caps by control groups: {}",
        words.join(", ")
    )
}

fn no_vms() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("VMs, bridges and namespaces need root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !there(tool)).collect();
    let absent = !missing.is_empty();
    absent.then(|| {
        format!(
            "{} missing; run `scripts/setup lab` as root",
            missing.join(", ")
        )
    })
}

/// Programs of the host that every experiment uses.
const TOOLS: [&str; 7] = [
    "qemu-system-x86_64",
    "mmdebstrap",
    "ip",
    "tc",
    "iperf3",
    "sockperf",
    "nsenter",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn host() -> Probe {
        Probe {
            cpus: 2,
            no_vms: None,
            groups: Ok("v1"),
            no_module: None,
            versions: String::new(),
        }
    }

    #[test]
    fn each_row_has_a_word_and_all_but_runnable_a_reason() {
        for row in catalogue::all() {
            let ability = host().judge(row);
            assert_eq!(
                ability.reason().is_empty(),
                ability == Ability::Runnable,
                "{}",
                row.id
            );
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let judge = |probe: &Probe, id: &str| probe.judge(catalogue::find(id).unwrap());
        assert_eq!(judge(&host(), "X14"), Ability::Runnable);
        assert!(judge(&host(), "X4").reason().contains("share 2 CPUs"));
        assert_eq!(judge(&host(), "W1").word(), "EMULATED");
        let one = Probe { cpus: 1, ..host() };
        assert!(judge(&one, "X4").reason().contains("needs 2 CPUs"));
        let plain = Probe {
            groups: Err("no cpu controller".into()),
            ..host()
        };
        assert!(judge(&plain, "W23").reason().contains("no cpu controller"));
        let bookish = Probe {
            no_module: Some("no headers".into()),
            ..host()
        };
        assert_eq!(
            judge(&bookish, "M2"),
            Ability::NotRunnable("no headers".into())
        );
        let bare = Probe {
            no_vms: Some("qemu missing".into()),
            ..host()
        };
        assert_eq!(
            judge(&bare, "X4"),
            Ability::NotRunnable("qemu missing".into())
        );
        assert_eq!(judge(&bare, "X0").word(), "NOT RUNNABLE");
        assert!(judge(&host(), "X13").reason().contains("share 2 CPUs"));
        let four = Probe { cpus: 4, ..host() };
        assert_eq!(judge(&four, "X13"), Ability::Runnable);
    }
}
