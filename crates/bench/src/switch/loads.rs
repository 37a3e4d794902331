//! Measures latency, light load, 64 KB frames and large FDBs with the benchmark's own generator.

use std::path::Path;

use report::stats::median;
use vm_harness::error::Result;
use vm_harness::progress::Progress;

use super::device_under_test::{SwitchKind, SwitchOptions};
use super::fdb;
use super::frames::{Frames, LONG, SHORT, mac};
use super::generator::{Flow, OfferedLoad};
use super::load_sample::{Cell, LoadFigures, LoadSample};
use super::load_setup::{LoadSetup, Run};
use super::options::Options;

/// Shares of the maximum rate at which latency is measured, in percent.
const SHARES: [u8; 3] = [10, 50, 90];

/// Frames a second of the light load.
const LIGHT: f64 = 100_000.0;

/// Runs from which the maximum rate is determined.
const MAXIMUM_RUNS: u32 = 3;

/// Makes the sample of a run.
fn sample(
    round: u32,
    cell: Cell,
    switch: SwitchKind,
    offered_per_s: Option<f64>,
    run: &Run,
) -> LoadSample {
    LoadSample {
        round,
        cell,
        switch,
        offered_per_s,
        figures: LoadFigures {
            frames_per_s: run.seen.frames_per_s(),
            p50_ns: run.seen.latency_ns(0.5).unwrap_or(0.0),
            p99_ns: run.seen.latency_ns(0.99).unwrap_or(0.0),
            core_share: run.core_share,
            cycles_per_frame: run.cycles_per_frame.unwrap_or(0.0),
        },
        disturbed: run.disturbed,
    }
}

/// Flows in both directions between the first two NICs.
fn both_ways() -> [Flow; 2] {
    [(0, 1), (1, 0)].map(|(from, to)| Flow {
        from,
        to: vec![mac(to)],
    })
}

/// Starts Vicinity and Open vSwitch with one pair of ports.
fn setups(options: &Options, folder: &Path, frames: Frames, name: &str) -> Result<[LoadSetup; 2]> {
    let shape = SwitchOptions {
        ports: 2,
        gso: frames.segment > 0,
    };
    let start = |switch: SwitchKind| {
        let name = format!("{name}-{switch}");
        LoadSetup::start(switch, shape, frames, &options.vicinity, folder, &name)
    };
    Ok([start(SwitchKind::Vicinity)?, start(SwitchKind::OvsDpdk)?])
}

/// Measures latency at each share of the maximum rate, and the light load.
pub(super) fn latency(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step("latency: starting vicinity and OVS-DPDK, driven by our own generator");
    let mut setups = setups(options, folder, SHORT, "latency")?;
    let flows = both_ways();
    let mut maximum = f64::INFINITY;
    for setup in &mut setups {
        let mut rates = Vec::new();
        for _ in 0..MAXIMUM_RUNS {
            rates.push(
                setup
                    .run(&flows, OfferedLoad::Saturate)?
                    .seen
                    .frames_per_s(),
            );
        }
        maximum = maximum.min(median(&rates));
    }
    let maximum_text = format!("{:.2} M frames/s", maximum / 1e6);
    let rates = SHARES.map(|share| (Cell::Latency(share), maximum * f64::from(share) / 100.0));
    let cells: Vec<_> = rates.into_iter().chain([(Cell::Light, LIGHT)]).collect();
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for &(cell, rate) in &cells {
            for setup in &mut setups {
                let calls = cell == Cell::Light;
                setup
                    .drivers
                    .iter_mut()
                    .for_each(|one| one.set_interrupts(calls));
                let run = setup.run(&flows, OfferedLoad::Rate(rate))?;
                samples.push(sample(round, cell, setup.switch, Some(rate), &run));
            }
        }
        print_progress(
            progress,
            &samples,
            round,
            options.rounds,
            &format!("maximum {maximum_text}"),
        );
        setups.reverse();
    }
    Ok(samples)
}

/// Measures frames of 64 KB between receivers that negotiated them.
pub(super) fn gso(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step("64 KB: starting vicinity and OVS-DPDK with userspace TSO");
    let mut setups = setups(options, folder, LONG, "gso")?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        for setup in &mut setups {
            let run = setup.run(&both_ways(), OfferedLoad::Saturate)?;
            samples.push(sample(round, Cell::Gso, setup.switch, None, &run));
        }
        print_progress(progress, &samples, round, options.rounds, "64 KB");
        setups.reverse();
    }
    Ok(samples)
}

/// Measures few FDB entries and many, with everything else equal.
pub(super) fn fdb_sizes(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<LoadSample>> {
    progress.step(
        "fdb: filling the FDB of one Vicinity with few addresses, and of another one with many",
    );
    let [few, many] = fdb::flows();
    let mut small = fdb::start(options, folder, fdb::FEW_ADDRESSES)?;
    let mut large = fdb::start(options, folder, fdb::MANY_ADDRESSES)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        let mut run = |setup: &mut LoadSetup, known, flow: &Flow, spoken_to| {
            let run = setup.run(std::slice::from_ref(flow), OfferedLoad::Saturate)?;
            let (known, spoken_to) = (fdb::count(known), fdb::count(spoken_to) - 1);
            let cell = Cell::Fdb { known, spoken_to };
            samples.push(sample(round, cell, setup.switch, None, &run));
            Ok(())
        };
        run(&mut small, fdb::FEW_ADDRESSES, &few, fdb::FEW_ADDRESSES)?;
        run(&mut large, fdb::MANY_ADDRESSES, &few, fdb::FEW_ADDRESSES)?;
        run(&mut large, fdb::MANY_ADDRESSES, &many, fdb::MANY_ADDRESSES)?;
        print_progress(progress, &samples, round, options.rounds, "fdb");
    }
    Ok(samples)
}

/// Prints one line of progress for a round.
fn print_progress(
    progress: &Progress,
    samples: &[LoadSample],
    round: u32,
    rounds: u32,
    what: &str,
) {
    let mut text = format!("round {round} of {rounds}, {what}:");
    for sample in samples.iter().filter(|sample| sample.round == round) {
        let LoadSample {
            cell,
            switch,
            figures,
            ..
        } = sample;
        let frames = figures.frames_per_s / 1e6;
        text += &format!("  {cell} {switch} {frames:.2} M/s");
        text += &match cell {
            Cell::Latency(_) => format!(" p99 {:.1} µs", figures.p99_ns / 1e3),
            Cell::Light => format!(" {:.0} % of a core", figures.core_share * 100.0),
            _ => format!(" {:.0} cycles", figures.cycles_per_frame),
        };
    }
    progress.step(&text);
}
