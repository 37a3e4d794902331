//! The problems of the daemon's VMs, by the definitions that `top`, the page and the alerts have, too
//! ([`crate::live::Detector`]).
//!
//! The command looks for two seconds, so that it does not see what must hold for longer: waits for a CPU. The checks of
//! ports, memory and addresses ([`super::running`]) tell the problems of these kinds.

use std::path::Path;
use std::time::Duration;

use super::check::{Check, Purpose};
use crate::commands::top::source::api_state;
use crate::live::{ApiState, Live, Problem, ProblemKind, Sampler};

/// How often, and how long before each time.
const LOOKS: [Duration; 2] = [Duration::from_millis(900), Duration::from_millis(1100)];

const NAME: &str = "stuck";

/// Looks at what the daemon of `runtime_dir` serves; `None` without a daemon.
pub(super) fn look(runtime_dir: &Path) -> Option<Live> {
    let mut sampler = Sampler::new(0.0, false);
    let state = || Some(api_state(runtime_dir)).filter(|state: &ApiState| state.pid.is_some());
    sampler.next(&state()?);
    let mut last = None;
    for pause in LOOKS {
        vm_harness::interrupt::sleep(pause).ok()?;
        last = state().and_then(|state| sampler.next(&state));
    }
    last
}

/// Returns what was found, with since when, and the command that helps.
pub(super) fn found(problem: &Problem, at: f64) -> (String, String) {
    let found = format!("for {}: {}", problem.held(at), problem.text);
    let remedy = problem.remedy.as_deref().unwrap_or("see `vicinity top`");
    (found, remedy.to_owned())
}

/// Returns a check for each problem that no other check of this command has.
pub(super) fn checks(live: &Live) -> Vec<Check> {
    let others = [
        ProblemKind::Quarantined,
        ProblemKind::PrivateMemory,
        ProblemKind::PortDown,
        ProblemKind::DuplicateAddress,
    ];
    let problems = live.problems.iter();
    let problems = problems.filter(|problem| !others.contains(&problem.kind));
    let checks: Vec<_> = problems
        .map(|problem| {
            let (found, remedy) = found(problem, live.at);
            Check::warn(NAME, found, remedy)
        })
        .collect();
    let checks = match checks.is_empty() {
        true => vec![Check::ok(NAME, "no receiver, data plane or space is stuck")],
        false => checks,
    };
    checks
        .into_iter()
        .map(|check| check.needed_for(Purpose::Running))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;
    use crate::live::tests::{live, problems};

    #[test]
    fn a_problem_is_a_warning_with_its_remedy_unless_another_check_has_it() {
        let mut live = live(&[("web", 0.5)]);
        assert_eq!(checks(&live)[0].verdict, Verdict::Ok);
        live.problems = problems(2, live.at);
        live.problems[1].kind = ProblemKind::Quarantined;
        let checks = checks(&live);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].verdict, Verdict::Warn);
        assert_eq!(checks[0].remedy, live.problems[0].remedy);
        assert!(checks[0].found.starts_with("for 90 s: "), "{checks:?}");
    }
}
