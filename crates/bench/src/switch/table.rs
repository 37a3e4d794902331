//! A report as text for a terminal.

use std::fmt;

use super::device_under_test::SwitchKind;
use super::load_sample::{Cell, LoadSummary};
use super::report::{Comparison, Report};
use super::sample::Figures;
use report::target::Target;

/// If the switch's busy share is below this value, the switch waited for the generator.
const LIMITED: f64 = 0.9;

/// If threads waited for a CPU for more than this share of the time, other programs disturbed the run.
const DISTURBED: f64 = 0.02;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(
            f,
            "Medians of {} rounds; the ratio is the median of the rounds' ratios",
            self.rounds
        )?;
        if !self.comparisons.is_empty() {
            frames(f, self)?;
        }
        if !self.loads.is_empty() {
            loads(f, &self.loads)?;
        }
        if self.disturbed() > DISTURBED {
            writeln!(
                f,
                "\nOther programs took {:.0} % of the CPU time meant for the benchmark: \
                 only the ratios count",
                self.disturbed() * 100.0
            )?;
        }
        writeln!(f)?;
        if let Some(idle) = &self.idle {
            writeln!(
                f,
                "Idle with two VMs for {:.0} s: {:.1} wake-ups/s, {:.3} % of a core",
                idle.seconds,
                idle.wakeups_per_s,
                idle.core_share * 100.0
            )?;
        }
        if let Some(idle) = &self.idle_ports {
            writeln!(
                f,
                "Idle with {} ports for {:.0} s: {:.1} wake-ups/s, {:.3} % of a core, {:.1} MiB",
                idle.ports,
                idle.cost.seconds,
                idle.cost.wakeups_per_s,
                idle.cost.core_share * 100.0,
                idle.resident_mib
            )?;
        }
        writeln!(f)?;
        Target::write_all(f, &self.targets)?;
        for left in &self.leftovers {
            writeln!(f, "LEFT BEHIND  {left}")?;
        }
        Ok(())
    }
}

fn frames(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(
        f,
        "\n{:>7}  {:>5}  {:9}  {:>10}  {:>7}  {:>12}  {:>6}  {:>11}",
        "frame", "pairs", "switch", "frames/s", "Gbit/s", "cycles/frame", "busy", "ours/theirs"
    )?;
    for found in &report.comparisons {
        compared(f, found)?;
    }
    let [least, middle, most] = report.line_ns();
    writeln!(
        f,
        "\nOne cache line between the CPUs, there and back: {middle:.0} ns ({least:.0} to \
         {most:.0})"
    )
}

fn compared(f: &mut fmt::Formatter<'_>, found: &Comparison) -> fmt::Result {
    let label = format!("{:>5} B  {:>5}", found.size, found.pairs);
    let limited = match found.vicinity.busy_share < LIMITED {
        true => "  (the generator is the limit)",
        false => "",
    };
    let ours = line(SwitchKind::Vicinity, found.size, &found.vicinity);
    writeln!(f, "{label}  {ours}{limited}")?;
    for peer in &found.peers {
        let theirs = line(peer.switch, found.size, &peer.figures);
        let (frames, cycles) = (peer.frames_ratio, peer.cycles_ratio);
        writeln!(
            f,
            "{:>14}  {theirs}  {frames:.2} frames, {cycles:.2} cycles",
            ""
        )?;
    }
    Ok(())
}

fn line(switch: SwitchKind, size: u16, figures: &Figures) -> String {
    format!(
        "{switch:9}  {:>8.2} M  {:>7.1}  {:>12.0}  {:>4.0} %",
        figures.frames_per_s / 1e6,
        figures.frames_per_s * f64::from(size) * 8.0 / 1e9,
        figures.cycles_per_frame,
        figures.busy_share * 100.0
    )
}

fn loads(f: &mut fmt::Formatter<'_>, loads: &[LoadSummary]) -> fmt::Result {
    writeln!(
        f,
        "\n{:20}  {:9}  {:>10}  {:>9}  {:>9}  {:>6}  {:>12}",
        "load", "switch", "frames/s", "p50", "p99", "core", "cycles/frame"
    )?;
    for load in loads {
        let figures = &load.figures;
        // At the maximum rate frames wait in full rings, so their latency is not shown.
        let latency = |ns: f64| match load.cell {
            Cell::Latency(_) | Cell::Light => format!("{:.1} µs", ns / 1e3),
            Cell::Gso | Cell::Fdb { .. } => String::new(),
        };
        writeln!(
            f,
            "{:20}  {:9}  {:>8.3} M  {:>9}  {:>9}  {:>4.0} %  {:>12.0}",
            load.cell,
            load.switch,
            figures.frames_per_s / 1e6,
            latency(figures.p50_ns),
            latency(figures.p99_ns),
            figures.core_share * 100.0,
            figures.cycles_per_frame
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::example::report;
    use super::*;

    #[test]
    fn the_table_shows_figures_verdicts_and_what_stayed() {
        let text = report().to_string();
        let expected = [
            "   64 B      1  vicinity      15.00 M      7.7           100    60 %  (the generator",
            "                ovs-dpdk      10.00 M      5.1           250   100 %  1.50 frames, 0.40",
            "                testpmd       12.00 M",
            "there and back: 210 ns (210 to 210)",
            "50 % of the maximum   vicinity      0.100 M     3.0 µs     9.0 µs    12 %",
            "99960 of 99961 known  vicinity      0.100 M                          12 %           105",
            "Other programs took 25 %",
            "Idle with 64 ports for 10 s: 6.0 wake-ups/s, 0.010 % of a core, 70.0 MiB",
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
        assert_eq!(back.load_samples, report().load_samples);
        assert_eq!(back.targets, report().targets);
    }
}
