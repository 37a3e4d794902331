//! Runs checks one after another, each with a time limit, and all of them before a common deadline.

use std::time::{Duration, Instant};

use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

use crate::check::{Check, Subject};
use crate::entry::Entry;
use crate::outcome::{Outcome, Verdict};

/// The reason of a check for which the common deadline left no time.
const NO_TIME: &str = "time: the limit for all checks together left too little";

/// The reason of a check that Ctrl-C prevented.
const INTERRUPTED: &str = "the user or a signal interrupted the self-test";

/// Runs the checks until `deadline` and passes each entry to `tell`. Returns the entries, and whether a signal
/// interrupted the run. Every check has an entry.
pub fn run<T: Subject>(
    checks: &[Check<T>],
    subject: &mut T,
    deadline: Instant,
    mut tell: impl FnMut(&Entry),
) -> (Vec<Entry>, bool) {
    let mut entries = Vec::new();
    let mut interrupted = false;
    for check in checks {
        let begin = Instant::now();
        let left = deadline.saturating_duration_since(begin);
        let outcome = match interrupted {
            true => Outcome::not_run(INTERRUPTED),
            false if left < check.usual => Outcome::not_run(NO_TIME),
            false => one(check, subject, left, &mut interrupted),
        };
        if outcome.verdict == Verdict::Fail {
            subject.reset();
        }
        let entry = Entry::new(check, outcome, begin.elapsed());
        tell(&entry);
        entries.push(entry);
    }
    (entries, interrupted)
}

fn one<T: Subject>(
    check: &Check<T>,
    subject: &mut T,
    left: Duration,
    interrupted: &mut bool,
) -> Outcome {
    let limit = check.limit.min(left);
    let begin = Instant::now();
    let ended = interrupt::within(&format!("the check {}", check.id), limit, || match missing(
        check, subject,
    )? {
        Some(reason) => Ok(Outcome::not_run(reason)),
        None => (check.run)(subject),
    });
    match ended {
        Ok(outcome) => outcome,
        Err(Error::Interrupted) => {
            *interrupted = true;
            Outcome::not_run(INTERRUPTED)
        }
        // The common deadline ended the check: the host is not at fault.
        Err(_) if begin.elapsed() >= limit && limit < check.limit => {
            subject.reset();
            Outcome::not_run(NO_TIME)
        }
        Err(_) if begin.elapsed() >= limit => {
            Outcome::fail(format!("did not end within {} s", limit.as_secs()))
        }
        Err(error) => Outcome::fail(error.to_string()),
    }
}

fn missing<T: Subject>(check: &Check<T>, subject: &mut T) -> Result<Option<String>> {
    for need in check.needs {
        if let Some(reason) = subject.missing(*need)? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Requirement;

    #[derive(Debug, Default)]
    struct Fake {
        resets: u32,
    }

    impl Subject for Fake {
        fn missing(&mut self, need: Requirement) -> Result<Option<String>> {
            Ok((need == Requirement::Kvm).then(|| "no KVM".to_owned()))
        }

        fn reset(&mut self) {
            self.resets += 1;
        }
    }

    fn check(id: &'static str, run: fn(&mut Fake) -> Result<Outcome>) -> Check<Fake> {
        Check {
            id,
            title: id,
            shows: "nothing",
            needs: &[],
            usual: Duration::ZERO,
            limit: Duration::from_secs(600),
            run,
        }
    }

    fn hang(_: &mut Fake) -> Result<Outcome> {
        interrupt::sleep(Duration::from_secs(600))?;
        Ok(Outcome::pass())
    }

    fn verdicts(checks: &[Check<Fake>], left: Duration) -> (Vec<(Verdict, String)>, Fake) {
        let mut fake = Fake::default();
        let mut told = 0;
        let (entries, interrupted) = run(checks, &mut fake, Instant::now() + left, |_| told += 1);
        assert!(!interrupted && told == checks.len());
        let of = |entry: Entry| (entry.verdict, entry.reason.unwrap_or_default());
        (entries.into_iter().map(of).collect(), fake)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_failed_check_is_a_failure_and_the_next_one_starts_from_the_beginning() {
        let fails = |_: &mut Fake| Err(Error::Host("the host is on fire".to_owned()));
        let checks = [check("a", fails), check("b", |_| Ok(Outcome::pass()))];
        let (found, fake) = verdicts(&checks, HOUR);
        assert_eq!(
            found,
            [
                (Verdict::Fail, "the host is on fire".to_owned()),
                (Verdict::Pass, String::new())
            ]
        );
        assert_eq!(fake.resets, 1);
    }

    #[test]
    fn a_check_that_hangs_is_ended_at_its_limit() {
        let mut hangs = check("a", hang);
        hangs.limit = Duration::from_millis(30);
        let (found, fake) = verdicts(&[hangs, check("b", |_| Ok(Outcome::measured()))], HOUR);
        assert_eq!(found[0].0, Verdict::Fail);
        assert!(found[0].1.contains("did not end within"), "{found:?}");
        assert_eq!(found[1].0, Verdict::Measured);
        assert_eq!(fake.resets, 1);
    }

    #[test]
    fn the_common_deadline_is_no_failure_of_a_check() {
        let mut long = check("b", |_| Ok(Outcome::pass()));
        long.usual = Duration::from_secs(10);
        let (found, _) = verdicts(&[check("a", hang), long], Duration::from_millis(30));
        for (verdict, reason) in found {
            assert_eq!((verdict, reason.as_str()), (Verdict::NotRun, NO_TIME));
        }
    }

    #[test]
    fn a_missing_requirement_is_the_reason() {
        let mut needs = check("a", |_| Ok(Outcome::pass()));
        needs.needs = &[Requirement::Vms, Requirement::Kvm];
        let (found, _) = verdicts(&[needs], HOUR);
        assert_eq!(found, [(Verdict::NotRun, "no KVM".to_owned())]);
    }
}
