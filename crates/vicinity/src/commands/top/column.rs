//! The columns of the table.

use observe::reading::MemoryKind;
use observe::report::{Activity, Vm};

use crate::table;

/// A column. VMs are sorted by the sum of its figures for guest and backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Use,
    Wait,
    Block,
    Executions,
    CpuPerExecution,
    WaitPerExecution,
    Switches,
    VmSwitches,
    Descriptors,
    PerExecution,
    Bytes,
    Pages,
    Memory,
    Watts,
}

/// The columns from left to right, each with its title and width.
pub(super) const COLUMNS: [(Column, &str, u16); 15] = [
    (Column::Name, "VM", 18),
    (Column::Use, "USE %", 7),
    (Column::Wait, "WAIT %", 7),
    (Column::Block, "BLOCK %", 8),
    (Column::Executions, "EXEC/s", 8),
    (Column::CpuPerExecution, "µs/EXEC", 9),
    (Column::WaitPerExecution, "WAIT/EXEC", 9),
    (Column::Switches, "SWITCH/s", 8),
    (Column::VmSwitches, "VM-SW/s", 8),
    (Column::Descriptors, "DESC/s", 8),
    (Column::PerExecution, "DESC/EXEC", 9),
    (Column::Bytes, "BYTES/s", 9),
    (Column::Pages, "PAGES/s", 8),
    (Column::Memory, "MEMORY", 9),
    (Column::Watts, "WATTS", 6),
];

/// Columns that a narrow screen omits, in this order.
pub(super) const DISPENSABLE: [Column; 8] = [
    Column::Pages,
    Column::Switches,
    Column::VmSwitches,
    Column::PerExecution,
    Column::WaitPerExecution,
    Column::Watts,
    Column::Block,
    Column::CpuPerExecution,
];

impl Column {
    /// Returns the figure by which a VM is sorted. An absent figure sorts as the smallest.
    pub(super) fn figure(self, vm: &Vm) -> f64 {
        let both = |figure: fn(&Activity) -> f64| figure(&vm.guest) + figure(&vm.backend);
        let traffic = vm.traffic.as_ref();
        let figure = match self {
            Self::Name => None,
            Self::Use => Some(both(|set| set.r#use)),
            Self::Wait => Some(both(|set| set.wait)),
            Self::Block => Some(both(|set| set.block)),
            Self::Executions => Some(both(|set| set.executions_per_second)),
            Self::CpuPerExecution => vm.guest.cpu_per_execution_us,
            Self::WaitPerExecution => vm.guest.wait_per_execution_us,
            Self::Switches => Some(both(|set| set.switches_per_second)),
            Self::VmSwitches => vm.switches_between.map(|them| them.guest + them.backend),
            Self::Descriptors => traffic.map(|traffic| traffic.descriptors),
            Self::PerExecution => traffic.and_then(|all| all.descriptors_per_execution),
            Self::Bytes => traffic.map(|traffic| traffic.tx_bytes + traffic.rx_bytes),
            Self::Pages => traffic.map(|traffic| traffic.pages),
            #[allow(clippy::cast_precision_loss, reason = "to sort by")]
            Self::Memory => vm.memory.map(|memory| memory.bytes as f64),
            Self::Watts => vm.watts,
        };
        figure.unwrap_or(-1.0)
    }

    /// Returns the two lines of a VM's cell: one for its guest, one for its backend.
    pub(super) fn cell(self, vm: &Vm) -> [String; 2] {
        let none = String::new;
        let sets = [&vm.guest, &vm.backend];
        let traffic = |figure: Option<String>| [none(), figure.unwrap_or_else(dash)];
        let moved = vm.traffic.as_ref();
        match self {
            Self::Name => [vm.name.clone(), format!("└ backend{}", mark(vm))],
            Self::Use => sets.map(|set| percent(set.r#use)),
            Self::Wait => sets.map(|set| percent(set.wait)),
            Self::Block => sets.map(|set| percent(set.block)),
            Self::Executions => sets.map(|set| count(set.executions_per_second)),
            Self::CpuPerExecution => sets.map(|set| micros(set.cpu_per_execution_us)),
            Self::WaitPerExecution => sets.map(|set| micros(set.wait_per_execution_us)),
            Self::Switches => sets.map(|set| count(set.switches_per_second)),
            Self::VmSwitches => match vm.switches_between {
                Some(them) => [them.guest, them.backend].map(count),
                None => [dash(), dash()],
            },
            Self::Descriptors => traffic(moved.map(|moved| count(moved.descriptors))),
            Self::PerExecution => {
                let figure = moved.and_then(|moved| moved.descriptors_per_execution);
                traffic(figure.map(|figure| format!("{figure:.1}")))
            }
            Self::Bytes => traffic(moved.map(|moved| bytes(moved.tx_bytes + moved.rx_bytes))),
            Self::Pages => traffic(moved.map(|moved| count(moved.pages))),
            Self::Memory => [vm.memory.map_or_else(dash, memory), none()],
            Self::Watts => [
                vm.watts.map_or_else(dash, |watts| format!("{watts:.1}")),
                none(),
            ],
        }
    }
}

/// Returns a mark if a VM's figures have notes.
fn mark(vm: &Vm) -> &'static str {
    if vm.notes.is_empty() { "" } else { " *" }
}

fn memory(memory: observe::reading::Memory) -> String {
    let mark = match memory.kind {
        MemoryKind::Pss => "",
        MemoryKind::Rss => "≤",
    };
    format!("{mark}{}", table::bytes(memory.bytes))
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats a number of CPUs as percent of one CPU.
pub(super) fn percent(cpus: f64) -> String {
    format!("{:.1}", cpus * 100.0)
}

fn micros(time: Option<f64>) -> String {
    time.map_or_else(dash, |time| match time {
        ..100.0 => format!("{time:.1}"),
        ..1_000_000.0 => format!("{time:.0}"),
        _ => format!("{:.1} s", time / 1e6),
    })
}

/// Formats a rate with few digits.
pub(super) fn count(rate: f64) -> String {
    match rate {
        ..100.0 => format!("{rate:.1}"),
        ..100_000.0 => format!("{rate:.0}"),
        ..10_000_000.0 => format!("{:.0} k", rate / 1e3),
        _ => format!("{:.0} M", rate / 1e6),
    }
}

fn bytes(rate: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "such casts saturate, and a rate is never negative"
    )]
    table::bytes(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        assert_eq!(count(0.0), "0.0");
        assert_eq!(count(99_999.0), "99999");
        assert_eq!(count(1_234_567.0), "1235 k");
        assert_eq!(micros(Some(250.4)), "250");
        assert_eq!(micros(Some(999_999.0)), "999999");
        assert_eq!(micros(None), "-");
        assert_eq!(percent(12.345), "1234.5");
    }

    #[test]
    fn every_column_is_there_once_and_the_first_never_goes() {
        for (index, (column, _, _)) in COLUMNS.iter().enumerate() {
            let last = COLUMNS.iter().rposition(|(other, _, _)| other == column);
            assert_eq!(last, Some(index));
        }
        assert!(!DISPENSABLE.contains(&Column::Name) && !DISPENSABLE.contains(&Column::Use));
    }
}
