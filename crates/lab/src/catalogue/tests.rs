//! The catalogue is complete, and each row can be evaluated.

use std::collections::BTreeSet;

use super::*;

#[test]
fn no_row_of_the_papers_is_missing() {
    let ids: Vec<&str> = all().map(|row| row.id).collect();
    let mut want: Vec<String> = (0..=7).map(|n| format!("X{n}")).collect();
    want.push("X7b".to_uppercase());
    want.extend((8..=15).map(|n| format!("X{n}")));
    want.extend((2..=7).map(|n| format!("M{n}")));
    want.extend((1..=27).map(|n| format!("W{n}")));
    want.extend((1..=9).map(|n| format!("N{n}")));
    assert_eq!(ids, want);
}

#[test]
fn every_claim_is_about_cells_and_metrics_that_exist() {
    for row in all().filter(|row| !row.sweep.is_empty()) {
        let sweep =
            sweep(row.sweep).unwrap_or_else(|| panic!("{}: no sweep {}", row.id, row.sweep));
        let known = |factor: &str, level: Option<&str>| {
            let found = sweep.factors.iter().find(|f| f.name == factor);
            let found = found
                .unwrap_or_else(|| panic!("{}: {} has no factor {factor}", row.id, sweep.name));
            // The scale `ci` may leave out cells of some claims.
            for scale in [Scale::Default, Scale::Full] {
                if let Some(level) = level {
                    assert!(
                        found.levels(scale).contains(&level),
                        "{}: {factor} has no {level} at {scale:?}",
                        row.id
                    );
                }
            }
        };
        for claim in row.claims {
            let (selectors, metrics, along) = claim.statistic.names();
            for (factor, level) in selectors.into_iter().flatten() {
                known(factor, Some(level));
            }
            metrics.iter().for_each(|key| {
                assert!(
                    sweep.gives(key),
                    "{}: {} gives no {key}",
                    row.id,
                    sweep.name
                );
            });
            along.iter().for_each(|factor| known(factor, None));
        }
        for figure in row.figures {
            // These factors are no levels of a cell: the sample of one cell has the figures of each run, or of each
            // 100 ms.
            if !["run", "ms"].contains(&figure.x) {
                known(figure.x, None);
            }
            figure.series.iter().for_each(|factor| known(factor, None));
            figure
                .of
                .iter()
                .for_each(|(factor, level)| known(factor, Some(level)));
            figure.metrics.iter().for_each(|key| {
                assert!(
                    sweep.gives(key),
                    "{}: {} gives no {key}",
                    row.id,
                    sweep.name
                );
            });
        }
    }
}

#[test]
fn a_row_without_a_sweep_says_why() {
    for row in all().filter(|row| row.sweep.is_empty()) {
        assert!(
            row.needs
                .iter()
                .any(|need| matches!(need, Requirement::Absent(_))),
            "{}",
            row.id
        );
    }
}

#[test]
fn every_figure_of_the_papers_has_a_plot() {
    let sources = |letter: char| -> BTreeSet<String> {
        let rows = all().filter(|row| row.id.starts_with(letter));
        rows.flat_map(|row| row.figures)
            .map(|figure| figure.source.to_owned())
            .collect()
    };
    let (channels, web) = (sources('X'), sources('W'));
    for number in 2..=10 {
        assert!(
            channels.iter().any(|s| *s == format!("Fig. {number}")),
            "paper 000, Fig. {number}"
        );
    }
    for number in 2..=5 {
        assert!(
            sources('M').contains(&format!("Fig. {number}")),
            "paper 002, Fig. {number}"
        );
    }
    // Fig. 4 shows energy, which is not measured, and Fig. 5 is a drawing.
    for number in [1, 2, 3, 6, 7, 8, 9, 10, 11] {
        assert!(
            sources('N').contains(&format!("Fig. {number}")),
            "paper 003, Fig. {number}"
        );
    }
    for number in 1..=32 {
        assert!(
            web.iter().any(|s| *s == format!("Fig. {number}")),
            "paper 001, Fig. {number}"
        );
    }
}

#[test]
fn an_unknown_experiment_names_the_nearest() {
    assert_eq!(find("w27").unwrap().id, "W27");
    let text = find("W28").unwrap_err().to_string();
    assert!(text.contains("nearest is W2"), "{text}");
}
