//! The self-test: one command that shows on a user's host what works there, and writes a report for a bug report.
//!
//! # Theory of operation
//!
//! ```text
//!   checks ──▶ runner: a limit for each, a deadline for all ──▶ entries: verdict, figures, notes, time
//!     │  asks for VMs                                              │
//!     ▼                                                            ▼
//!   testbed                                                     document ──▶ privacy ──▶ selftest.json
//!     VM one ────┐                                                                  └──▶ page: selftest.html
//!     VM two ────┤ daemon: `vicinity serve` with a network, the message plane,
//!     VM three ──┤         a trust group and a space
//!     VM mover ──┘
//! ```
//!
//! 1. A [check](check::Check) says what it shows and what it needs of the host. The runner skips a check whose
//!    requirement is missing, ends it at its limit, and does not start it if the common deadline is too near.
//! 2. The testbed has one daemon and up to four VMs with different machines, firmware and memory. It boots a VM when
//!    the first check asks for it, and the next checks use the same VM. After a failed check it ends everything, so a
//!    check never fails because of an earlier one.
//! 3. Before the report is written, it loses what identifies the host or its users ([`privacy`]).
//!
//! Everything that the self-test starts is a child that the kernel kills with this process, or a folder or namespace
//! with the name of its owner ([`vm_harness::scope`]). Ctrl-C ends the check under way, and the report is written.

#![forbid(unsafe_code)]

pub mod check;
mod checks;
mod daemon;
pub mod document;
pub mod entry;
#[cfg(test)]
mod example;
pub mod files;
mod guest;
pub mod host;
pub mod options;
pub mod outcome;
mod page;
pub mod privacy;
mod region;
pub mod runner;
mod testbed;

use std::path::PathBuf;
use std::time::Instant;

use vm_harness::accel::{self, Accel};
use vm_harness::error::{Error, Result};
use vm_harness::scope;

use check::Check;
use document::{Report, SCHEMA, SCHEMA_VERSION};
use entry::Entry;
use host::Host;
use options::Options;
use privacy::Redactor;
use testbed::Testbed;

/// A check as `--list` shows it: its id, its title, and what it shows.
pub type CheckInfo = (&'static str, &'static str, &'static str);

/// Returns every check, in the order in which they run.
#[must_use]
pub fn list() -> Vec<CheckInfo> {
    checks::ALL
        .iter()
        .map(|check| (check.id, check.title, check.shows))
        .collect()
}

/// Runs the checks, passes each entry to `tell`, and writes the report into the output folder. Returns the report and
/// the paths of its files.
///
/// # Errors
/// An id is unknown, or the report cannot be written. A failed check is no error.
pub fn run(options: &Options, mut tell: impl FnMut(&Entry)) -> Result<(Report, [PathBuf; 2])> {
    let chosen = chosen(&options.only)?;
    let begin = Instant::now();
    scope::sweep()?;
    let redactor = Redactor::of_host(&[&options.output, &options.cache]);
    let date = date();
    let mut bed = Testbed::new(options);
    let (checks, interrupted) = runner::run(&chosen, &mut bed, begin + options.limit, |entry| {
        let mut entry = entry.clone();
        entry.reason = entry.reason.map(|reason| redactor.text(&reason));
        tell(&entry);
    });
    let report = Report {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        version: options.version.clone(),
        date,
        seconds: (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        accelerator: bed.accel().map_or("none", Accel::name).to_owned(),
        accelerator_reason: accel::reason().map(str::to_owned),
        guest_kernel: bed.guest_kernel(),
        host: Host::read_facts(),
        checks,
        interrupted,
    };
    drop(bed);
    let report = report.redacted(&redactor)?;
    let files = files::write(&report, &options.output)?;
    Ok((report, files))
}

/// Returns the checks with these ids, in the order in which they run; all of them if there is no id.
fn chosen(ids: &[String]) -> Result<Vec<Check<Testbed>>> {
    if let Some(id) = ids
        .iter()
        .find(|id| !checks::ALL.iter().any(|check| check.id == **id))
    {
        let known: Vec<&str> = checks::ALL.iter().map(|check| check.id).collect();
        return Err(Error::Host(format!(
            "no check is called `{id}`; there are {}",
            known.join(", ")
        )));
    }
    let chosen = checks::ALL.into_iter();
    Ok(chosen
        .filter(|check| ids.is_empty() || ids.iter().any(|id| id == check.id))
        .collect())
}

/// Returns the time in UTC, as RFC 3339 writes it.
fn date() -> String {
    let mut date = vm_harness::host::command("date");
    date.args(["-u", "+%FT%TZ"]);
    vm_harness::host::run_to_end(date)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_an_id_of_its_own_and_says_what_it_shows() {
        let mut ids: Vec<&str> = checks::ALL.iter().map(|check| check.id).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        for check in &checks::ALL {
            assert!(
                !check.shows.is_empty() && check.usual <= check.limit,
                "{}",
                check.id
            );
        }
    }

    #[test]
    fn an_unknown_id_is_named_with_those_that_exist() {
        let error = chosen(&["boots".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("`boots`") && error.contains("boot-pc-5g"),
            "{error}"
        );
        let ids = ["space", "doctor"].map(str::to_owned);
        let chosen: Vec<&str> = chosen(&ids).unwrap().iter().map(|check| check.id).collect();
        assert_eq!(chosen, ["doctor", "space"]);
    }
}
