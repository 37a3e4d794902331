//! The state of the screen: the last report, the order of its VMs, and their history.

use std::collections::{HashMap, VecDeque};

use observe::report::{Report, Vm};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::column::{COLUMNS, Column};

/// Number of intervals in the history.
const HISTORY_LENGTH: usize = 240;

/// A VM: its process and name.
type Key = (u32, String);

/// The view below the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LowerPane {
    /// The selected VM's threads, if the user has turned them on.
    Threads,
    /// The matrix of which VM sends to which.
    Traffic,
    /// The matrix of which VM runs after which.
    Switches,
}

impl LowerPane {
    fn next(self) -> Self {
        match self {
            Self::Threads => Self::Traffic,
            Self::Traffic => Self::Switches,
            Self::Switches => Self::Threads,
        }
    }
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    pub(super) report: Option<Report>,
    pub(super) sort: Column,
    pub(super) reverse: bool,
    pub(super) details: bool,
    pub(super) below: LowerPane,
    selected: Option<Key>,
    past: HashMap<Key, VecDeque<f64>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            report: None,
            sort: Column::Use,
            reverse: false,
            details: true,
            below: LowerPane::Threads,
            selected: None,
            past: HashMap::new(),
        }
    }
}

fn key(vm: &Vm) -> Key {
    (vm.pid, vm.name.clone())
}

impl State {
    /// Takes a new report.
    pub(super) fn update(&mut self, report: Report) {
        for vm in &report.vms {
            let past = self.past.entry(key(vm)).or_default();
            past.push_back(vm.guest.r#use + vm.backend.r#use);
            if past.len() > HISTORY_LENGTH {
                past.pop_front();
            }
        }
        let there = |known: &Key| report.vms.iter().any(|vm| key(vm) == *known);
        self.past.retain(|known, _| there(known));
        if !self.selected.as_ref().is_some_and(there) {
            self.selected = None;
        }
        self.report = Some(report);
        self.sort();
    }

    fn sort(&mut self) {
        let (column, reverse) = (self.sort, self.reverse);
        let Some(report) = &mut self.report else {
            return;
        };
        report.vms.sort_by(|a, b| {
            let by_name = (&a.name, a.pid).cmp(&(&b.name, b.pid));
            // Figures in descending order, but names from A to Z.
            let order = column.figure(b).total_cmp(&column.figure(a)).then(by_name);
            if reverse { order.reverse() } else { order }
        });
    }

    /// Returns the VMs in order.
    pub(super) fn vms(&self) -> &[Vm] {
        self.report.as_ref().map_or(&[], |report| &report.vms)
    }

    /// Returns the index of the selected VM: the first unless the user selected another.
    pub(super) fn selected(&self) -> usize {
        let chosen = self.selected.as_ref();
        let place = chosen.and_then(|known| self.vms().iter().position(|vm| key(vm) == *known));
        place.unwrap_or(0)
    }

    /// Returns the CPUs that a VM and its backend used in each interval, the latest interval last.
    pub(super) fn past(&self, vm: &Vm) -> impl DoubleEndedIterator<Item = f64> {
        self.past.get(&key(vm)).into_iter().flatten().copied()
    }

    /// Handles a key. Returns false if the user quits.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Left => self.sort_by_neighbour(COLUMNS.len() - 1),
            KeyCode::Right => self.sort_by_neighbour(1),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Up => self.select(self.selected().saturating_sub(1)),
            KeyCode::Down => self.select(self.selected() + 1),
            KeyCode::Enter => self.details = !self.details,
            KeyCode::Char('m') => self.below = self.below.next(),
            _ => {}
        }
        self.sort();
        true
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.vms().len().saturating_sub(1));
        self.selected = self.vms().get(place).map(key);
    }

    fn sort_by_neighbour(&mut self, step: usize) {
        let place = COLUMNS
            .iter()
            .position(|(column, _, _)| *column == self.sort);
        let next = COLUMNS.iter().cycle().nth(place.unwrap_or(0) + step);
        self.sort = next.map_or(self.sort, |(column, _, _)| *column);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use observe::energy::Provenance;
    use observe::report::{Activity, Host};

    use super::*;

    pub(in crate::commands::top) fn report(vms: &[(&str, f64)]) -> Report {
        let activity = |used| Activity {
            threads: 1.0,
            r#use: used,
            block: 1.0 - used,
            ..Activity::default()
        };
        let vm = |(pid, (name, used)): (u32, &(&str, f64))| Vm {
            name: (*name).to_owned(),
            pid,
            accelerator: None,
            guest: activity(*used),
            backend: activity(0.0),
            backend_in_vicinity: 0.0,
            switches_between: None,
            halt_poll: None,
            traffic: None,
            memory: None,
            watts: None,
            cgroup: None,
            threads: Vec::new(),
            notes: Vec::new(),
        };
        Report {
            seconds: 1.0,
            host: Host {
                cpus: 2,
                busy: Some(1.5),
                interrupts: None,
                stolen: None,
                pressure: None,
                memory: None,
                memory_available: None,
                watts: None,
                energy: Provenance::Modelled,
                own: 0.001,
            },
            vicinity: None,
            vms: (1..).zip(vms).map(vm).collect(),
            pairs: Vec::new(),
            switches: None,
            cannot_read: Vec::new(),
        }
    }

    fn names(state: &State) -> Vec<&str> {
        state.vms().iter().map(|vm| vm.name.as_str()).collect()
    }

    fn press(state: &mut State, code: KeyCode) -> bool {
        state.press(KeyEvent::from(code))
    }

    #[test]
    fn the_busiest_is_first_and_any_column_sorts() {
        let mut state = State::default();
        state.update(report(&[("b", 0.1), ("a", 0.1), ("c", 0.9)]));
        assert_eq!(names(&state), ["c", "a", "b"]);
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(names(&state), ["b", "a", "c"]);
        press(&mut state, KeyCode::Char('r'));
        press(&mut state, KeyCode::Left);
        assert_eq!(state.sort, Column::Name);
        assert_eq!(names(&state), ["a", "b", "c"]);
        press(&mut state, KeyCode::Left);
        assert_eq!(state.sort, Column::Watts);
    }

    #[test]
    fn a_selected_vm_stays_selected_while_the_order_changes() {
        let mut state = State::default();
        state.update(report(&[("a", 0.9), ("b", 0.1)]));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), 1);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), 1, "there is no third");
        state.update(report(&[("a", 0.1), ("b", 0.9)]));
        assert_eq!((names(&state), state.selected()), (vec!["b", "a"], 0));
        state.update(report(&[("a", 0.1)]));
        assert_eq!(state.selected(), 0, "it is gone");
    }

    #[test]
    fn the_past_is_bounded_and_forgotten_with_its_vm() {
        let mut state = State::default();
        for _ in 0..HISTORY_LENGTH + 5 {
            state.update(report(&[("a", 0.5)]));
        }
        assert_eq!(state.past(&state.vms()[0]).count(), HISTORY_LENGTH);
        state.update(report(&[]));
        assert!(state.past.is_empty());
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut state = State::default();
        assert!(!press(&mut state, KeyCode::Char('q')));
        assert!(!press(&mut state, KeyCode::Esc));
        assert!(press(&mut state, KeyCode::Char('c')));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!state.press(control_c));
        assert!(press(&mut state, KeyCode::Down), "without any VM");
    }
}
