//! The rate of the host's time-stamp counter, which is that of an emulated guest, too.
//!
//! A guest's kernel measures the rate against an emulated timer while it boots. On a busy host that fails: a guest was seen
//! that took 310 MHz for 2596, so that its clock ran 8.4 times too fast.

use std::fs;
use std::path::Path;

/// Returns the rate in kHz, if the host's kernel tells it.
pub(crate) fn host_khz() -> Option<u64> {
    // With a driver for frequencies, `/proc/cpuinfo` has the present frequency of a processor instead.
    if Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        return None;
    }
    parse(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// Reads `/proc/cpuinfo`. Its "cpu MHz" is the rate of the counter where the processor does not count its cycles
/// (`show_cpuinfo` in arch/x86/kernel/cpu/proc.c, `arch_freq_get_on_cpu` in arch/x86/kernel/cpu/aperfmperf.c).
fn parse(text: &str) -> Option<u64> {
    let field = |name| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
        Some(value.trim())
    };
    let has = |flag| field("flags").is_some_and(|flags| flags.split(' ').any(|it| it == flag));
    if !has("constant_tsc") || has("aperfmperf") {
        return None;
    }
    let (mhz, fraction) = field("cpu MHz")?.split_once('.')?;
    let khz: u64 = format!("{mhz}{fraction:0<3.3}").parse().ok()?;
    (khz > 0).then_some(khz)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_rate_is_read_only_where_it_is_that_of_the_counter() {
        let text =
            |flags| format!("processor\t: 0\nflags\t\t: fpu {flags}\ncpu MHz\t\t: 2596.136\n");
        assert_eq!(parse(&text("constant_tsc nonstop_tsc")), Some(2_596_136));
        assert_eq!(parse(&text("constant_tsc aperfmperf")), None);
        assert_eq!(parse(&text("tsc")), None);
        assert_eq!(parse("flags : constant_tsc\ncpu MHz : 0.000\n"), None);
        assert_eq!(parse(""), None);
    }
}
