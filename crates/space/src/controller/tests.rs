use proptest::prelude::*;

use super::*;

const MIN_SLOTS: u32 = 2;

fn objective() -> Objective {
    Objective {
        seconds: 1.5,
        quantile: Some(0.95),
        max_blocked: 0.2,
        weight: 1.0,
        class: 0,
    }
}

/// Returns a window of one second in which `jobs` jobs arrived and left.
fn window(jobs: u64, blocked: f64, in_use: u32) -> Window {
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let count = jobs as f64;
    Window {
        seconds: 1.0,
        arrived: jobs,
        gaps: 1.0,
        gaps_squared: 2.0 / count.max(1.0),
        computed: jobs,
        computing: count * 0.05,
        computing_squared: count * 0.005,
        blocked,
        released: jobs,
        transmitting: count * 0.1,
        completion: 0.1 + blocked,
        high_water: in_use,
        in_use,
        retained: 0,
    }
}

#[test]
fn a_space_that_only_retains_slots_gets_an_equal_share_and_no_more() {
    let mut controller = Controller::new(40, MIN_SLOTS);
    for id in [1, 2] {
        assert!(controller.attach(id, objective()).is_ok());
    }
    // Space 1 fills its slots, waits, and never returns one.
    for second in 1..60 {
        let slots = controller.slots(1).unwrap();
        let full = Window {
            released: 0,
            transmitting: 0.0,
            retained: if second > 5 { slots } else { 0 },
            ..window(slots.into(), 1.0, slots)
        };
        controller.tick(
            f64::from(second),
            &[(1, full), (2, window(1, 0.0, 1))],
            false,
        );
        assert_eq!(controller.slots(1), Some(20), "second {second}");
    }
}

#[test]
fn held_slots_are_granted_in_addition_to_circulating_slots() {
    let mut controller = Controller::new(40, MIN_SLOTS);
    for id in [1, 2] {
        assert!(controller.attach(id, objective()).is_ok());
    }
    for second in 1..300 {
        let jobs = |retained| Window {
            transmitting: 0.9,
            retained,
            ..window(6, 0.0, 4 + retained)
        };
        let windows = [(1, jobs(10)), (2, jobs(0))];
        controller.tick(f64::from(second), &windows, false);
    }
    let (first, second) = (controller.slots(1).unwrap(), controller.slots(2).unwrap());
    assert!(first >= second + 5, "{first} {second}");
}

#[test]
fn a_smaller_budget_reclaims_only_slots_that_are_not_in_use() {
    let mut controller = Controller::new(40, MIN_SLOTS);
    for id in [1, 2] {
        assert!(controller.attach(id, objective()).is_ok());
    }
    let windows = [(1, window(5, 0.0, 12)), (2, window(5, 0.0, 3))];
    controller.tick(1.0, &windows, false);
    let decisions = controller.set_budget(20);
    assert!(
        decisions
            .iter()
            .all(|decision| decision.slots < decision.before)
    );
    assert_eq!(
        (controller.slots(1), controller.slots(2)),
        (Some(12), Some(10))
    );
    assert_eq!((controller.excess(), controller.free()), (2, 0));
    controller.set_reported_size(1, 10);
    assert_eq!(controller.excess(), 0);
}

#[test]
fn a_waiting_space_gets_unused_slots_and_returns_them_later() {
    let mut controller = Controller::new(20, MIN_SLOTS);
    for id in [1, 2] {
        assert!(controller.attach(id, objective()).is_ok());
    }
    assert_eq!(
        (controller.slots(1), controller.slots(2)),
        (Some(10), Some(10))
    );
    let (idle, full) = (window(1, 0.0, 1), window(9, 0.6, 10));
    let decisions = controller.tick(1.0, &[(1, full), (2, idle)], false);
    let reasons: Vec<Reason> = decisions.iter().map(|decision| decision.reason).collect();
    assert_eq!(reasons, [Reason::ShrinkLent, Reason::GrowBlocked]);
    assert_eq!(
        (controller.slots(1), controller.slots(2)),
        (Some(15), Some(5))
    );
    controller.tick(2.0, &[(1, idle), (2, window(9, 0.6, 5))], false);
    assert!(controller.slots(2) > Some(5), "{:?}", controller.slots(2));
}

#[test]
fn nothing_grows_while_the_host_is_short_of_memory() {
    let mut controller = Controller::new(20, MIN_SLOTS);
    assert!(controller.attach(1, objective()).is_ok());
    controller.detach(1);
    for id in [1, 2] {
        assert!(controller.attach(id, objective()).is_ok());
    }
    for second in 1..60 {
        let windows = [(1, window(9, 0.6, 10)), (2, window(1, 0.0, 1))];
        let decisions = controller.tick(f64::from(second), &windows, true);
        assert!(
            decisions
                .iter()
                .all(|decision| decision.slots <= decision.before)
        );
    }
}

#[test]
fn a_new_space_gets_an_equal_share_of_slots_that_are_not_in_use() {
    let mut controller = Controller::new(12, MIN_SLOTS);
    assert!(controller.attach(1, objective()).is_ok());
    assert_eq!(controller.slots(1), Some(12));
    controller.tick(1.0, &[(1, window(5, 0.0, 3))], false);
    assert!(controller.attach(2, objective()).is_ok());
    assert_eq!(
        (controller.slots(1), controller.slots(2)),
        (Some(6), Some(6))
    );
    controller.tick(
        2.0,
        &[(1, window(5, 0.0, 6)), (2, window(5, 0.0, 6))],
        false,
    );
    assert_eq!(controller.attach(3, objective()), Err(BudgetInUse));
    assert_eq!(controller.slots(3), None);
}

#[derive(Clone, Debug)]
enum Step {
    Attach(Id),
    Detach(Id),
    Tick(Vec<(u64, f64, u32)>, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let windows = prop::collection::vec((0_u64..60, 0.0_f64..1.0, 0_u32..40), 6);
    prop_oneof![
        1 => (0_u32..6).prop_map(Step::Attach),
        1 => (0_u32..6).prop_map(Step::Detach),
        8 => (windows, prop::bool::weighted(0.1)).prop_map(|(w, p)| Step::Tick(w, p)),
    ]
}

proptest! {
    #[test]
    fn the_sum_stays_within_the_budget_and_no_slot_in_use_is_reclaimed(
        budget in 4_u32..120, steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut controller = Controller::new(budget, MIN_SLOTS);
        let mut now = 0.0;
        for step in steps {
            match step {
                Step::Attach(id) => if controller.slots(id).is_none() {
                    // The host may have no room for another space.
                    let _full = controller.attach(id, objective());
                },
                Step::Detach(id) => controller.detach(id),
                Step::Tick(samples, pressure) => {
                    now += 1.0;
                    let mut windows = Vec::new();
                    for (id, (jobs, blocked, in_use)) in (0..).zip(samples) {
                        if let Some(slots) = controller.slots(id) {
                            windows.push((id, window(jobs, blocked, in_use.min(slots))));
                        }
                    }
                    controller.tick(now, &windows, pressure);
                    for (id, window) in &windows {
                        prop_assert!(controller.slots(*id) >= Some(window.in_use.max(MIN_SLOTS)));
                    }
                }
            }
            let all: u32 = (0..6).filter_map(|id| controller.slots(id)).sum();
            prop_assert!(all <= budget);
        }
    }
}
