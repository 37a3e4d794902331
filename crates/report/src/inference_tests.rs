//! Tests the inference with known results, and checks properties.

use proptest::prelude::*;

use super::*;

fn near(a: f64, b: f64, by: f64) -> bool {
    (a - b).abs() < by
}

#[test]
fn students_t_has_the_values_of_its_tables() {
    // t = 2 * sqrt(5) / 1.5811 = 2.8284, 4 degrees of freedom: one-sided p = 0.02371.
    let figures = [0.0, 1.0, 2.0, 3.0, 4.0];
    assert!(near(p_mean_above(&figures, 0.0), 0.023_71, 1e-4));
    // The 97.5 % point of t with 4 degrees of freedom is 2.7764.
    assert!(near(
        half_width(&figures),
        2.7764 * 1.581_139 / 5f64.sqrt(),
        1e-3
    ));
    assert!(near(deviation(&figures), 1.581_139, 1e-6));
}

#[test]
fn two_figures_prove_nothing() {
    assert!(near(Region::Above(0.0).test(&[9.0, 9.1]).p(), 1.0, 1e-12));
    assert!(half_width(&[9.0, 9.1]).is_infinite());
}

#[test]
fn within_needs_both_sides() {
    let region = Region::Within(0.99, 1.01);
    let tight = region.test(&[1.000, 1.001, 0.999, 1.0005]);
    assert!(tight.supports_region() && tight.p() < 0.05);
    let wide = region.test(&[1.05, 0.95, 1.02, 0.97]);
    assert!(wide.p() > 0.05);
    let far = region.test(&[1.20, 1.21, 1.19, 1.20]);
    assert!(!far.supports_region() && far.p() < 0.05);
}

#[test]
fn holm_has_the_textbook_answer() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    let want = [0.03, 0.06, 0.06, 0.02];
    assert!(
        adjusted.iter().zip(want).all(|(a, b)| near(*a, b, 1e-12)),
        "{adjusted:?}"
    );
}

#[test]
fn the_crossover_lies_between_the_sizes_where_the_sign_turns() {
    let curve = [(1024.0, -0.5), (4096.0, -0.1), (16384.0, 0.1)];
    assert!(near(crossover(&curve), 8192.0, 1e-6));
    assert!(near(crossover(&[(64.0, 0.2), (128.0, 0.1)]), 0.0, 1e-12));
    assert!(crossover(&[(64.0, 0.2), (128.0, -0.1)]).is_infinite());
    // A curve that drops below zero again counts from the size above which it stays positive.
    assert!(crossover(&[(64.0, 0.2), (128.0, -0.1), (256.0, 0.1)]) > 128.0);
}

#[test]
fn ranks_correlate() {
    assert!(near(
        rank_correlation(&[1.0, 2.0, 9.0], &[3.0, 5.0, 6.0]),
        1.0,
        1e-12
    ));
    assert!(near(
        rank_correlation(&[1.0, 2.0, 9.0], &[9.0, 5.0, 1.0]),
        -1.0,
        1e-12
    ));
    assert!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
}

#[test]
fn a_bootstrap_covers_the_mean_about_as_often_as_it_says() {
    let mut dice = fastrand::Rng::with_seed(7);
    let covered = (0..200)
        .filter(|_| {
            let figures: Vec<f64> = (0..30).map(|_| dice.f64() + dice.f64()).collect();
            let of =
                |chosen: &[usize]| mean(&chosen.iter().map(|at| figures[*at]).collect::<Vec<_>>());
            let interval = bootstrap(figures.len(), of);
            interval.low <= 1.0 && 1.0 <= interval.high
        })
        .count();
    assert!((180..=198).contains(&covered), "{covered} of 200");
}

proptest! {
    #[test]
    fn holm_never_lowers_and_keeps_the_order(p in prop::collection::vec(0.0..1.0f64, 1..20)) {
        let adjusted = holm(&p);
        for (a, (raw, one)) in p.iter().zip(&adjusted).enumerate() {
            prop_assert!(one >= raw && *one <= 1.0);
            for (b, other) in adjusted.iter().enumerate() {
                prop_assert!(p[a] > p[b] || one <= other);
            }
        }
    }

    #[test]
    fn a_test_does_not_care_for_the_unit(
        figures in prop::collection::vec(0.1..10.0f64, 3..12), bound in 0.1..10.0f64, unit in 0.01..100.0f64
    ) {
        let scaled: Vec<f64> = figures.iter().map(|x| x * unit).collect();
        prop_assert!(near(p_mean_above(&figures, bound), p_mean_above(&scaled, bound * unit), 1e-6));
    }

    #[test]
    fn inside_and_outside_are_never_both_sure(figures in prop::collection::vec(-5.0..5.0f64, 0..9), low in -5.0..5.0f64, width in 0.0..5.0f64) {
        for region in [Region::Above(low), Region::Below(low), Region::Within(low, low + width)] {
            let sure = region.test(&figures);
            prop_assert!(sure.inside.max(sure.outside) >= 0.5 - 1e-9, "{sure:?}");
        }
    }

    #[test]
    fn an_interval_lies_within_the_figures(figures in prop::collection::vec(-9.0..9.0f64, 1..9)) {
        let of = |chosen: &[usize]| mean(&chosen.iter().map(|at| figures[*at]).collect::<Vec<_>>());
        let interval = bootstrap(figures.len(), of);
        let (least, most) = figures.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        prop_assert!(interval.low <= interval.high + 1e-9);
        prop_assert!(interval.low >= least - 1e-9 && interval.high <= most + 1e-9);
    }
}

#[test]
fn figures_that_are_all_alike_say_no_more_than_on_which_side_they_are() {
    for (count, p) in [(3, 0.125), (10, 1.0 / 1024.0)] {
        let figures = vec![1.0; count];
        assert!(near(p_mean_above(&figures, 0.0), p, 1e-12));
        assert!(near(p_mean_above(&figures, 2.0), 1.0 - p, 1e-12));
        assert!(near(p_mean_above(&figures, 1.0), 0.5, 1e-12));
    }
}
