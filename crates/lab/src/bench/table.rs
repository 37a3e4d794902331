//! A report as text for a terminal.

use std::fmt;

use super::peer::Peer;
use super::report::{Comparison, Figures, Report, Target};

/// Below this busy share the switch waited for the generator.
const LIMITED: f64 = 0.9;

/// Above this share of waiting for a CPU the run was disturbed.
const DISTURBED: f64 = 0.02;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {} CPUs, Linux {}",
            machine.processor, machine.cpus, machine.kernel
        )?;
        let rounds = self.samples.iter().map(|sample| sample.round).max();
        let rounds = rounds.unwrap_or(0);
        writeln!(
            f,
            "Medians of {rounds} rounds; the ratio is the median of the rounds' ratios\n"
        )?;
        writeln!(
            f,
            "{:>7}  {:9}  {:>12}  {:>7}  {:>12}  {:>6}",
            "frame", "switch", "frames/s", "Gbit/s", "cycles/frame", "busy"
        )?;
        for found in &self.comparisons {
            compared(f, found)?;
        }
        let [least, middle, most] = self.line_ns();
        writeln!(
            f,
            "\nOne cache line between the CPUs, there and back: {middle:.0} ns ({least:.0} to \
             {most:.0})"
        )?;
        if self.disturbed() > DISTURBED {
            writeln!(
                f,
                "Other programs took {:.0} % of the CPU time meant for the benchmark: \
                 only the ratios count",
                self.disturbed() * 100.0
            )?;
        }
        let idle = &self.idle;
        writeln!(
            f,
            "\nIdle with two VMs for {:.0} s: {:.1} wake-ups/s, {:.3} % of a core\n",
            idle.seconds,
            idle.wakeups_per_s,
            idle.core_share * 100.0
        )?;
        for target in &self.targets {
            verdict(f, target)?;
        }
        for left in &self.leftovers {
            writeln!(f, "LEFT BEHIND  {left}")?;
        }
        Ok(())
    }
}

fn compared(f: &mut fmt::Formatter<'_>, found: &Comparison) -> fmt::Result {
    let size = format!("{} B", found.size);
    line(f, &size, Peer::Vicinity, found.size, &found.vicinity)?;
    line(f, "", Peer::OvsDpdk, found.size, &found.ovs_dpdk)?;
    writeln!(
        f,
        "{:>7}  {:9}  {:>12.2}  {:>7}  {:>12.2}",
        "", "ratio", found.frames_ratio, "", found.cycles_ratio
    )?;
    if found.vicinity.busy_share < LIMITED {
        writeln!(
            f,
            "{:>7}  the generator is the limit of vicinity's frames/s here",
            ""
        )?;
    }
    Ok(())
}

fn line(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    switch: Peer,
    size: u16,
    figures: &Figures,
) -> fmt::Result {
    writeln!(
        f,
        "{label:>7}  {switch:9}  {:>10.2} M  {:>7.1}  {:>12.0}  {:>4.0} %",
        figures.frames_per_s / 1e6,
        figures.frames_per_s * f64::from(size) * 8.0 / 1e9,
        figures.cycles_per_frame,
        figures.busy_share * 100.0
    )
}

fn verdict(f: &mut fmt::Formatter<'_>, target: &Target) -> fmt::Result {
    let word = if target.reached {
        "reached"
    } else {
        "NOT REACHED"
    };
    let bound = if target.at_least {
        "at least"
    } else {
        "at most"
    };
    let (name, measured, value) = (&target.name, target.measured, target.bound);
    writeln!(f, "{word:11}  {name}: {measured:.2} ({bound} {value:.2})")
}

#[cfg(test)]
mod tests {
    use crate::machine::Machine;

    use super::super::idle::Idle;
    use super::super::report::{Sample, compare, targets};
    use super::*;

    fn report() -> Report {
        let sample = |switch, frames_per_s, cycles_per_frame, busy_share| Sample {
            round: 1,
            size: 64,
            switch,
            figures: Figures {
                frames_per_s,
                cycles_per_frame,
                busy_share,
            },
            unsent: 0,
            line_ns: 210.0,
            disturbed: 0.25,
        };
        let samples = vec![
            sample(Peer::Vicinity, 15e6, 100.0, 0.6),
            sample(Peer::OvsDpdk, 10e6, 250.0, 1.0),
        ];
        let comparisons = compare(&samples, &[64]);
        let idle = Idle {
            seconds: 10.0,
            wakeups_per_s: 6.0,
            core_share: 0.0001,
        };
        Report {
            machine: Machine {
                processor: "a processor".to_owned(),
                cpus: 2,
                memory_mib: 1024,
                kernel: "6.1".to_owned(),
                system: "Debian".to_owned(),
                qemu: "10.0".to_owned(),
                revision: String::new(),
                date: "2026-01-01T00:00:00Z".to_owned(),
            },
            vicinity: "0.1.0".to_owned(),
            ovs_dpdk: "3.1.0".to_owned(),
            window_s: 2.0,
            targets: targets(&comparisons, &idle),
            samples,
            comparisons,
            idle,
            leftovers: vec!["a process".to_owned()],
        }
    }

    #[test]
    fn the_table_shows_figures_verdicts_and_what_stayed() {
        let text = report().to_string();
        let expected = [
            "   64 B  vicinity        15.00 M      7.7           100    60 %",
            "         ovs-dpdk        10.00 M      5.1           250   100 %",
            "         ratio              1.50                   0.40",
            "the generator is the limit",
            "there and back: 210 ns (210 to 210)",
            "Other programs took 25 %",
            "reached      64 B: frames/s against OVS-DPDK: 1.50 (at least 1.30)",
            "NOT REACHED  idle: wake-ups a second: 6.00 (at most 5.00)",
            "LEFT BEHIND  a process",
        ];
        for line in expected {
            assert!(text.contains(line), "no `{line}` in:\n{text}");
        }
    }

    #[test]
    fn the_json_can_be_read_back() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(text.contains("\"switch\":\"ovs-dpdk\""), "{text}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(back.samples, report().samples);
        assert_eq!(back.targets, report().targets);
    }
}
