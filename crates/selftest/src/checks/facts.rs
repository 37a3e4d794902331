//! Checks without a VM: the doctor, the guest image, and what is left behind.

use std::time::Instant;

use serde_json::Value;
use vm_harness::accel;
use vm_harness::error::{Error, Result};
use vm_harness::{host, scope};

use crate::check::{Requirement, Subject};
use crate::daemon::text;
use crate::outcome::Outcome;
use crate::testbed::Testbed;

/// Runs `vicinity doctor`.
pub(super) fn doctor(bed: &mut Testbed) -> Result<Outcome> {
    let mut command = host::command("sh");
    // The doctor's exit code is 1 if something is missing, which is no failure of the command here.
    command.args(["-c", "\"$0\" doctor --json --log error; [ $? -le 1 ]"]);
    command.arg(&bed.options.vicinity);
    let printed = host::run(command)?;
    let checks: Value = serde_json::from_str(&printed)
        .map_err(|_| Error::unreadable("what `vicinity doctor` prints", &printed))?;
    Ok(judge(checks.as_array().map_or(&[], Vec::as_slice)))
}

/// Returns the outcome of the doctor's checks. What concerns the VMs that a daemon of this host serves now is private, so
/// only its verdicts are used.
fn judge(checks: &[Value]) -> Outcome {
    let mut outcome = Outcome::pass();
    let mut missing = Vec::new();
    let mut running = 0;
    for check in checks {
        let of = |key: &str| text(check, key);
        match (of("/purpose").as_str(), of("/verdict").as_str()) {
            (_, "ok") | ("bench", _) => {}
            ("running", _) => running += 1,
            ("serve", "missing") => missing.push(format!("{}: {}", of("/name"), of("/found"))),
            (_, verdict) => {
                let note = format!("{verdict}: {}: {}", of("/name"), of("/found"));
                outcome = outcome.note(note);
            }
        }
    }
    if running > 0 {
        let note =
            format!("{running} warnings about VMs that a daemon serves now: see `vicinity doctor`");
        outcome = outcome.note(note);
    }
    outcome.require(missing.is_empty(), || missing.join("; "))
}

/// Builds the guest image and finds the accelerator.
pub(super) fn image(bed: &mut Testbed) -> Result<Outcome> {
    let begin = Instant::now();
    if let Some(reason) = bed.missing(Requirement::Vms)? {
        return Ok(Outcome::not_run(reason));
    }
    let mut outcome =
        Outcome::pass().figure("image and accelerator", begin.elapsed().as_secs_f64(), "s");
    if let Some(accel) = bed.accel() {
        outcome = outcome.note(format!("accelerator: {}", accel.name()));
    }
    if let Some(reason) = accel::reason() {
        outcome = outcome.note(format!("KVM is not used: {reason}"));
    }
    Ok(match bed.missing(Requirement::Modules)? {
        Some(reason) => outcome.note(format!("without kernel modules in the guests: {reason}")),
        None => outcome,
    })
}

/// Ends everything, and looks for what is left.
pub(super) fn leftovers(bed: &mut Testbed) -> Result<Outcome> {
    bed.reset();
    let removed = scope::sweep()?;
    let children = host::family(std::process::id()).len() - 1;
    let outcome =
        Outcome::pass().require(children == 0, || format!("{children} processes still run"));
    Ok(outcome.require(removed.is_empty(), || {
        "a folder or a namespace of an earlier run was left".to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;
    use serde_json::json;

    #[test]
    fn what_is_served_now_stays_private() {
        let check = |name: &str, verdict: &str, purpose: &str| json!({"name": name, "verdict": verdict, "found": format!("found {name}"), "purpose": purpose});
        let outcome = judge(&[
            check("addresses", "warn", "running"),
            check("huge pages", "warn", "serve"),
            check("qemu", "ok", "serve"),
        ]);
        assert_eq!(outcome.verdict, Verdict::Pass);
        let notes = outcome.notes.join("\n");
        assert!(
            notes.contains("found huge pages") && notes.contains("1 warnings"),
            "{notes}"
        );
        assert!(!notes.contains("found addresses"), "{notes}");
        let outcome = judge(&[check("memfd", "missing", "serve")]);
        assert_eq!(outcome.reason.as_deref(), Some("memfd: found memfd"));
    }
}
