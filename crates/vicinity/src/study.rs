//! `vicinity lab`: the measurement studies of the papers, run again here.

use lab::study::catalogue;
use lab::study::probe::Probe;

/// Every experiment, and whether this host can run it.
pub(crate) fn list() -> String {
    let probe = Probe::look();
    let lines = catalogue::all().map(|row| {
        let ability = probe.judge(row);
        let mut line = format!(
            "{:<4} {:<12}  {}  ({})\n",
            row.id,
            ability.word(),
            row.title,
            row.source
        );
        if !ability.reason().is_empty() {
            line += &format!("{:<18} -> {}\n", "", ability.reason());
        }
        line
    });
    lines.collect()
}
