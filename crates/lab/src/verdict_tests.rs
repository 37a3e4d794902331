use super::*;
use crate::sample::Cell;

/// Makes samples like those of `idle-max`, in which 3 idle VMs reduce VM 1's throughput at 1 kB by `loss`.
fn synthetic_samples(blocks: u32, loss: f64) -> Vec<Sample> {
    let cell = |levels: &[(&str, &str)]| {
        Cell(
            levels
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect(),
        )
    };
    let mut samples = Vec::new();
    for block in 1..=blocks {
        let jitter = 1.0 + 0.002 * f64::from(block % 3);
        for (sweep, levels, value) in [
            ("noise", vec![("arm", "a")], 100.0),
            ("noise", vec![("arm", "b")], 100.0 * jitter),
            (
                "idle-max",
                vec![("server", "httpd"), ("file", "1"), ("idle", "0")],
                1070.0,
            ),
            (
                "idle-max",
                vec![("server", "httpd"), ("file", "1"), ("idle", "3")],
                1070.0 * (1.0 - loss) * jitter,
            ),
        ] {
            let key = if sweep == "noise" { "mbit_s" } else { "req_s" };
            samples.push(Sample {
                sweep: sweep.into(),
                block,
                cell: cell(&levels),
                values: [(key.to_owned(), value)].into(),
                failed: None,
                line_ns: None,
                at: 0.0,
            });
        }
    }
    samples
}

fn findings(samples: &[Sample]) -> Vec<Finding> {
    let probe = Probe {
        cpus: 2,
        no_vms: None,
        groups: Ok("v1"),
        no_module: None,
        versions: String::new(),
    };
    let rows = [
        catalogue::find("W1").unwrap(),
        catalogue::find("X0").unwrap(),
    ];
    judge(&rows, samples, Scale::Ci, &probe)
}

fn verdict(samples: &[Sample]) -> Vec<Verdict> {
    findings(samples)
        .iter()
        .map(|finding| finding.verdict)
        .collect()
}

#[test]
fn each_verdict_has_its_evidence() {
    use Verdict::{NotRunnable, NotSignificant, Reproduced, Reversed};
    assert_eq!(
        verdict(&synthetic_samples(8, 0.066)),
        [Reproduced, NotRunnable]
    );
    assert_eq!(
        verdict(&synthetic_samples(8, -0.066)),
        [Reversed, NotRunnable]
    );
    assert_eq!(
        verdict(&synthetic_samples(2, 0.066)),
        [NotSignificant, NotRunnable]
    );
    assert_eq!(verdict(&[]), [NotRunnable, NotRunnable]);
}

#[test]
fn what_was_measured_and_gives_no_figure_says_why() {
    let with_zeros = |blocks: u32| {
        let mut samples = synthetic_samples(8, 0.066);
        let zeros = samples
            .iter_mut()
            .filter(|one| one.cell.level("idle") == "3" && one.block <= blocks);
        zeros.for_each(|one| one.values = [("req_s".to_owned(), 0.0)].into());
        findings(&samples)
    };
    let none = &with_zeros(8)[0];
    assert_eq!(none.verdict, Verdict::NotSignificant);
    let why = "8 blocks give no figure: a side of its quotient was 0";
    assert_eq!(none.reason, why);
    let some = &with_zeros(1)[0];
    assert_eq!((some.verdict, some.blocks), (Verdict::Reproduced, 7));
    assert!(some.reason.starts_with("a block gives no figure"));
}

#[test]
fn what_is_not_sure_says_where_its_interval_is() {
    let claim = catalogue::find("W1").unwrap().claims.last().unwrap();
    assert_eq!(claim.expects, Region::Within(0.98, 1.02));
    let said = |low, high, blocks| {
        let evidence = Evidence {
            estimate: 1.0,
            interval: Interval { low, high },
            p_values: Region::Above(0.0).test(&[]),
            blocks,
            undefined: 0,
        };
        side_of_interval(claim, &evidence)
    };
    assert!(said(0.99, 1.01, 4).contains("speaks for it"));
    assert!(said(1.1, 1.3, 4).contains("speaks against it"));
    assert_eq!(said(0.9, 1.1, 4), "");
    assert_eq!(said(0.99, 1.01, 2), "only 2 of 3 blocks");
}

#[test]
fn an_effect_as_small_as_the_noise_is_none() {
    assert_eq!(
        verdict(&synthetic_samples(8, 0.0008))[0],
        Verdict::NotSignificant
    );
    // The ratio is significantly below one, but within the interval of the A/A run.
    let mut samples = synthetic_samples(8, 0.02);
    let noisy = samples
        .iter_mut()
        .filter(|one| one.cell.level("arm") == "b");
    for (sample, factor) in noisy.zip([1.0, 1.08, 0.95].into_iter().cycle()) {
        sample.values.insert("mbit_s".into(), 100.0 * factor);
    }
    assert!(noise_threshold(&noise(&samples, Scale::Ci)) > 0.02);
    assert_eq!(verdict(&samples)[0], Verdict::NotSignificant);
}

#[test]
fn what_is_known_well_enough_is_not_measured_on() {
    let sweep = catalogue::sweep("idle-max").unwrap();
    assert!(!is_tight(sweep, &[], Scale::Ci));
    assert!(
        !is_tight(sweep, &synthetic_samples(8, 0.066), Scale::Ci),
        "70 kB was not measured"
    );
}
