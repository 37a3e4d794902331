//! `vicinity selftest`: what works on this host, shown on VMs, and a report for a bug report.

use std::path::PathBuf;

use clap::Args;
use selftest::document::{JSON, Report};
use selftest::options::LIMIT;
use selftest::outcome::Verdict;
use vm_harness::accel::{self, Accel};
use vm_harness::error::HarnessError;

use super::failure::Failure;
use super::output::print;

/// What to check, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder of the report and the logs
    #[arg(long, default_value = "target/selftest", value_name = "DIR")]
    output: PathBuf,
    /// Folder of the guest images, which `demo` and the lab use too
    #[arg(long, default_value = "target/lab", value_name = "DIR")]
    cache: PathBuf,
    /// The accelerator of the VMs: `kvm` fails where KVM does not work, `auto` uses KVM where it works
    #[arg(long, env = "VICINITY_ACCEL", value_parser = ["auto", "kvm", "tcg"], default_value = "auto", value_name = "NAME")]
    accel: String,
    /// Run only these checks, as `--list` names them
    #[arg(long, num_args = 1.., value_name = "ID")]
    only: Vec<String>,
    /// List the checks, and run none
    #[arg(long)]
    list: bool,
}

/// Runs the self-test, prints a line for each check, and says where the report is.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.list {
        return print(&list());
    }
    if let Ok(accel) = options.accel.parse::<Accel>() {
        accel::choose(accel);
    }
    vm_harness::interrupt::install()?;
    let known = selftest::list();
    if let Some(wrong) = options
        .only
        .iter()
        .find(|id| known.iter().all(|check| check.0 != **id))
    {
        return Err(Failure::missing(
            "check",
            wrong,
            known.iter().map(|check| check.0),
        ));
    }
    let chosen = selftest::options::Options {
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cache: options.cache.clone(),
        output: options.output.clone(),
        only: options.only.clone(),
        limit: LIMIT,
    };
    // If the reader has gone, the report is still written.
    let (report, files) = selftest::run(&chosen, |entry| drop(print(&(entry.line() + "\n"))))?;
    let [json, html] = files.map(|file| file.display().to_string());
    print(&closing(&report, &json, &html))?;
    match report.count(Verdict::Fail) {
        _ if report.interrupted => Err(HarnessError::Interrupted.into()),
        0 => Ok(()),
        failed => Err(Failure::Selftest(failed)),
    }
}

/// Returns the checks as text.
fn list() -> String {
    let lines = selftest::list().into_iter();
    lines
        .map(|(id, title, shows)| format!("{id:<20}  {title}\n{:<20}  shows {shows}\n", ""))
        .collect()
}

/// Returns the end of the output: the counts, where the report is, and what to do with it.
fn closing(report: &Report, json: &str, html: &str) -> String {
    format!(
        "\n{} in {:.0} s, accelerator {}\nReport: {html}, {json}\n\
         Attach {JSON} to an issue, also if all is well. Names, folders and addresses of this host are not in it; read \
         it first.\n",
        report.summary(),
        report.seconds,
        report.accelerator
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_check() {
        let text = list();
        for (id, ..) in selftest::list() {
            assert!(text.lines().any(|line| line.starts_with(id)), "{id}");
        }
    }
}
