//! A discrete-event simulation of the controller and of simpler policies on synthetic loads.
//!
//! Time is simulated. The controller is the same code that sizes real spaces. One seed produces the same jobs for every
//! policy, so that policies can be compared in pairs.

mod plant;
mod policy;
mod trace;

use serde::Serialize;

use crate::controller::Id;
use crate::demand::Objective;
use crate::estimator::Window;
use plant::Plant;
pub use policy::Policy;
use policy::RunningPolicy;
pub use trace::Trace;
use trace::{Jobs, TRACE_SECONDS, VMS};

/// The objective of each simulated VM: 95 % of the jobs get their slot within this many seconds.
pub const DEADLINE: f64 = 1.5;

/// The result of one policy on one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Fraction of the jobs that got their slot after [`DEADLINE`] or not at all.
    pub late: f64,
    /// Resizes per minute, of all VMs together.
    pub resizes: f64,
    /// Seconds in which guests were blocked because no slot was free.
    pub blocked: f64,
    /// Mean number of slots that all spaces have together.
    pub slots: f64,
}

/// Simulates a policy on a load, with `budget` slots for all VMs together.
#[must_use]
pub fn run(trace: Trace, policy: Policy, budget: u32, seed: u64) -> Outcome {
    let objective = Objective {
        seconds: DEADLINE,
        quantile: Some(0.95),
        max_blocked: 0.2,
        weight: 1.0,
        class: 0,
    };
    let mut policy_state = RunningPolicy::new(policy, budget, VMS);
    let mut noise = fastrand::Rng::with_seed(seed ^ 0x006e_6f69_7365);
    let mut plants: Vec<Option<Plant>> = (0..VMS).map(|_| None).collect();
    let mut departed: Vec<Plant> = Vec::new();
    let (mut resizes, mut slots) = (0_u32, 0.0);
    let mut now = 0.0;
    while now < TRACE_SECONDS {
        for (vm, plant) in (0_u32..).zip(&mut plants) {
            let present = trace.is_present(vm as usize, now);
            if present && plant.is_none() {
                policy_state.attach(vm, objective);
                let jobs = Jobs::new(trace, vm as usize, seed);
                *plant = Some(Plant::new(jobs, policy_state.slots(vm), now));
            } else if !present {
                if let Some(plant) = plant.take() {
                    policy_state.detach(vm);
                    departed.push(plant);
                }
            }
        }
        resizes += apply(&policy_state, &mut plants, now);
        now += 1.0;
        let mut windows: Vec<(Id, Window)> = Vec::new();
        for (vm, plant) in (0..).zip(&mut plants) {
            let Some(plant) = plant else { continue };
            plant.run(now);
            let window = plant.close_window(now);
            slots += f64::from(plant.slots);
            let (max_error, loss) = trace.noise();
            if noise.f64() >= loss {
                windows.push((
                    vm,
                    distorted(window, 1.0 + max_error * (2.0 * noise.f64() - 1.0)),
                ));
            }
        }
        policy_state.tick(now, &windows);
        resizes += apply(&policy_state, &mut plants, now);
    }
    let all: Vec<&Plant> = plants.iter().flatten().chain(&departed).collect();
    let jobs: usize = all
        .iter()
        .map(|plant| plant.times_to_slot.len() + plant.unserved())
        .sum();
    let late = |plant: &&Plant| {
        plant
            .times_to_slot
            .iter()
            .filter(|time| **time > DEADLINE)
            .count()
            + plant.unserved()
    };
    let late: usize = all.iter().map(late).sum();
    #[allow(clippy::cast_precision_loss, reason = "some ten thousand jobs")]
    Outcome {
        late: late as f64 / jobs.max(1) as f64,
        resizes: f64::from(resizes) / (TRACE_SECONDS / 60.0),
        blocked: all.iter().map(|plant| plant.blocked_seconds).sum(),
        slots: slots / TRACE_SECONDS,
    }
}

/// Resizes the plants as the policy decided and returns how many changed.
fn apply(policy_state: &RunningPolicy, plants: &mut [Option<Plant>], now: f64) -> u32 {
    let mut changed = 0;
    for (vm, plant) in (0..).zip(plants) {
        let Some(plant) = plant else { continue };
        let slots = policy_state.slots(vm);
        if slots != plant.slots {
            plant.resize(now, slots);
            changed += 1;
        }
    }
    changed
}

/// Returns the window that the policy receives: its times are multiplied by `factor`.
fn distorted(window: Window, factor: f64) -> Window {
    Window {
        computing: window.computing * factor,
        transmitting: window.transmitting * factor,
        completion: window.completion * factor,
        ..window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of seeds. The results do not depend on the machine.
    const SEEDS: u64 = 8;

    fn mean(trace: Trace, policy: Policy, budget: u32, value: fn(&Outcome) -> f64) -> f64 {
        let of = |seed| value(&run(trace, policy, budget, seed));
        #[allow(clippy::cast_precision_loss, reason = "eight")]
        let count = SEEDS as f64;
        (0..SEEDS).map(of).sum::<f64>() / count
    }

    #[test]
    fn the_hybrid_policy_halves_late_jobs_against_equal_shares_on_skewed_and_step_loads() {
        for trace in [Trace::Skewed, Trace::LinkStep] {
            for budget in [16, 32] {
                let late = |policy| mean(trace, policy, budget, |outcome| outcome.late);
                let (hybrid, equal) = (late(Policy::Hybrid), late(Policy::Static));
                assert!(
                    hybrid <= equal / 2.0,
                    "{trace:?} {budget}: {hybrid} {equal}"
                );
            }
        }
    }

    #[test]
    fn the_hybrid_policy_matches_a_pool_on_bursts_and_heavy_tails_with_fewer_changes() {
        for trace in [Trace::Bursts, Trace::HeavySend] {
            for budget in [16, 32] {
                let of = |policy, value| mean(trace, policy, budget, value);
                let late = |policy| of(policy, |outcome: &Outcome| outcome.late);
                let resizes = |policy| of(policy, |outcome: &Outcome| outcome.resizes);
                assert!(
                    late(Policy::Hybrid) <= late(Policy::Pool) * 1.02,
                    "{trace:?} {budget}"
                );
                assert!(
                    resizes(Policy::Hybrid) < resizes(Policy::Pool),
                    "{trace:?} {budget}"
                );
            }
        }
    }

    #[test]
    fn the_windows_of_a_plant_match_its_trace() {
        let mut plant = Plant::new(Jobs::new(Trace::Equal, 0, 5), 4, 0.0);
        let (mut arrived, mut released, mut transmitting) = (0, 0, 0.0);
        for second in 1..=600 {
            plant.run(f64::from(second));
            let window = plant.close_window(f64::from(second));
            assert!(window.in_use <= 4 && window.high_water <= 4);
            assert!(window.transmitting <= 1.0 + 1e-9 && window.blocked <= 1.0 + 1e-9);
            arrived += window.arrived;
            released += window.released;
            transmitting += window.transmitting;
        }
        // 5.6 jobs per second, each transmitted in 1/8 s on average.
        assert!((3_200..3_500).contains(&arrived), "{arrived}");
        assert!(arrived - released <= 40);
        assert!((transmitting / 600.0 - 0.7).abs() < 0.04, "{transmitting}");
    }
}
