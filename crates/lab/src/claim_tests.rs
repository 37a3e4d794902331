//! Tests claims about artificial samples with a known result.

use super::*;
use crate::sample::Cell;

fn sample(block: u32, levels: &[(&str, &str)], value: f64) -> Sample {
    let cell = Cell(
        levels
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect(),
    );
    let values = [("m".to_owned(), value), ("n".to_owned(), 1.0 / value)].into();
    Sample {
        sweep: "s".into(),
        block,
        cell,
        values,
        failed: None,
        line_ns: None,
        at: 0.0,
    }
}

fn levels(_: &str) -> Vec<String> {
    ["1K", "4K", "16K"].map(String::from).to_vec()
}

fn claim(statistic: Statistic, expects: Region) -> Claim {
    Claim {
        text: "",
        paper: "",
        statistic,
        expects,
    }
}

/// Makes samples. The values of blocks differ by a factor of ten; within a block, `b` is `gain` times `a`.
fn pairs(gain: f64) -> Vec<Sample> {
    let speeds = [1.0, 10.0, 0.1, 3.0];
    let blocks = (1..).zip(speeds);
    blocks
        .flat_map(|(block, speed)| {
            let jitter = 1.0 + 0.001 * f64::from(block);
            [
                sample(block, &[("c", "a")], speed),
                sample(block, &[("c", "b")], speed * gain * jitter),
            ]
        })
        .collect()
}

#[test]
fn pairs_are_compared_within_their_block() {
    let ratio = Statistic::Ratio {
        metric: "m",
        of: &[("c", "b")],
        to: &[("c", "a")],
    };
    let found = claim(ratio, Region::Above(1.0)).evaluate(&pairs(1.1), &levels);
    assert!((found.estimate - 1.1027).abs() < 0.001, "{found:?}");
    assert!(found.p_values.supports_region() && found.p_values.p() < 0.01);
    assert!(found.interval.low > 1.1 && found.interval.high < 1.11);
    let against = claim(ratio, Region::Below(1.0)).evaluate(&pairs(1.1), &levels);
    assert!(!against.p_values.supports_region() && against.p_values.p() < 0.01);
}

#[test]
fn nothing_measured_says_nothing() {
    let value = Statistic::Value {
        metric: "other",
        of: &[],
    };
    let found = claim(value, Region::Above(0.0)).evaluate(&pairs(1.0), &levels);
    assert!(found.blocks == 0 && found.estimate.is_nan() && found.p_values.p() >= 1.0);
}

fn curves(blocks: u32) -> Vec<Sample> {
    let gains = [("1K", 0.5), ("4K", 0.9), ("16K", 1.0 / 0.9)];
    (1..=blocks)
        .flat_map(|block| {
            gains.into_iter().flat_map(move |(size, gain)| {
                let jitter = 1.0 + 0.001 * f64::from(block);
                [
                    sample(block, &[("c", "a"), ("size", size)], 7.0),
                    sample(block, &[("c", "b"), ("size", size)], 7.0 * gain * jitter),
                ]
            })
        })
        .collect()
}

#[test]
fn a_crossover_is_found_with_its_interval() {
    let statistic = Statistic::Crossover {
        metric: "m",
        of: &[("c", "b")],
        to: &[("c", "a")],
        along: "size",
    };
    let expects = Region::Within(2048.0, 32768.0);
    let found = claim(statistic, expects).evaluate(&curves(6), &levels);
    assert!((found.estimate - 8192.0).abs() < 300.0, "{found:?}");
    assert!(found.interval.low <= found.estimate && found.estimate <= found.interval.high);
    assert!(found.p_values.supports_region() && found.p_values.p() < 0.01);
    let few = claim(statistic, expects).evaluate(&curves(3), &levels);
    assert!(few.p_values.p() >= 1.0, "three blocks are no bootstrap");
}

#[test]
fn trends_follow_the_order_of_levels_not_of_their_names() {
    let rising = Statistic::Trend {
        metric: "m",
        of: &[("c", "b")],
        along: "size",
    };
    let found = claim(rising, Region::Above(0.0)).evaluate(&curves(4), &levels);
    assert!((found.estimate - 1.0).abs() < 1e-9);
    let pairs = Statistic::Correlation {
        x: "m",
        y: "n",
        of: &[("c", "b")],
    };
    let found = claim(pairs, Region::Below(0.0)).evaluate(&curves(4), &levels);
    assert!((found.estimate + 1.0).abs() < 1e-9);
    let first = Statistic::FirstStep {
        metric: "m",
        of: &[("c", "b")],
        along: "size",
    };
    assert!(
        claim(first, Region::Above(0.0))
            .evaluate(&curves(4), &levels)
            .estimate
            > 0.0
    );
    let last = Statistic::Decline {
        metric: "m",
        of: &[("c", "b")],
        along: "size",
    };
    assert!(
        (claim(last, Region::Above(0.9))
            .evaluate(&curves(4), &levels)
            .estimate
            - 1.0)
            .abs()
            < 1e-9
    );
}

/// Like [`curves`], with a third channel that is better than `a` from 1 KB on.
fn two_curves() -> Vec<Sample> {
    let better = |sample: &Sample| {
        let size = sample.cell.level("size").to_owned();
        let value = if size == "1K" { 6.0 } else { 8.0 };
        self::sample(sample.block, &[("c", "z"), ("size", &size)], value)
    };
    let mut all = curves(6);
    let third: Vec<Sample> = all
        .iter()
        .filter(|sample| sample.cell.level("c") == "a")
        .map(better)
        .collect();
    all.extend(third);
    all
}

#[test]
fn a_shift_compares_two_crossovers() {
    let shift = |of, from| Statistic::Shift {
        metric: "m",
        of,
        from,
        to: &[("c", "a")],
        along: "size",
    };
    let down = claim(shift(&[("c", "z")], &[("c", "b")]), Region::Below(1.0));
    let found = down.evaluate(&two_curves(), &levels);
    assert!(found.estimate < 0.4, "{found:?}");
    assert!(found.p_values.supports_region() && found.p_values.p() < 0.01);
    // A crossover that did not move must not count as moved down, also if one curve is better at every size, so that
    // the crossover is zero or infinite.
    for same in [&[("c", "b")] as Selector, &[("c", "a")]] {
        let found = claim(shift(same, same), Region::Below(1.0)).evaluate(&two_curves(), &levels);
        assert!((found.estimate - 1.0).abs() < 1e-9, "{found:?}");
        assert!(!found.p_values.supports_region());
    }
}

#[test]
fn one_metric_may_lose_more_than_another() {
    let relative = Statistic::Relative {
        metric: "n",
        than: "m",
        of: &[("c", "b")],
        to: &[("c", "a")],
    };
    // `n` is 1 / `m`, so `n` falls where `m` rises by a tenth.
    let found = claim(relative, Region::Below(1.0)).evaluate(&pairs(1.1), &levels);
    assert!((found.estimate - 1.0 / 1.1027_f64.powi(2)).abs() < 0.001);
    assert!(found.p_values.supports_region() && found.p_values.p() < 0.01);
}

#[test]
fn every_step_counts_where_every_step_is_claimed() {
    let least = Statistic::LeastStep {
        metric: "m",
        of: &[("c", "b")],
        along: "size",
    };
    let found = claim(least, Region::Above(1.0)).evaluate(&curves(6), &levels);
    assert!((found.estimate - 1.0 / 0.81).abs() < 0.01, "{found:?}");
    let falling = Statistic::LeastStep {
        metric: "n",
        of: &[("c", "b")],
        along: "size",
    };
    let found = claim(falling, Region::Above(1.0)).evaluate(&curves(6), &levels);
    assert!(found.estimate < 0.6 && !found.p_values.supports_region());
}
