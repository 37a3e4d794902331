//! The state of the screen: the last report, the order of its VMs, and their history.

use std::collections::{HashMap, VecDeque};

use observe::report::{Report, Vm};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::column::{COLUMNS, Column};
use crate::live::{Live, Problem, explain};

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
    /// The problems, the worst first.
    pub(super) problems: Vec<Problem>,
    /// The end of the last interval, in seconds since 1970.
    pub(super) at: f64,
    /// Whether the remedies of the problems are shown.
    pub(super) remedies: bool,
    /// Whether the list of keys is shown.
    pub(super) help: bool,
    /// Only VMs whose name contains this are shown.
    pub(super) filter: String,
    /// Whether keys change the filter.
    pub(super) is_typing: bool,
    /// Why the selected VM waits, if the user asked.
    pub(super) explanation: Option<String>,
    selected: Option<Key>,
    /// CPUs that each VM used, and waited for.
    past: HashMap<Key, VecDeque<(f64, f64)>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            report: None,
            sort: Column::Use,
            reverse: false,
            details: true,
            below: LowerPane::Threads,
            problems: Vec::new(),
            at: 0.0,
            remedies: true,
            help: false,
            filter: String::new(),
            is_typing: false,
            explanation: None,
            selected: None,
            past: HashMap::new(),
        }
    }
}

fn key(vm: &Vm) -> Key {
    (vm.pid, vm.name.clone())
}

impl State {
    /// Takes the figures of an interval.
    pub(super) fn update_live(&mut self, live: Live) {
        (self.problems, self.at) = (live.problems, live.at);
        self.update(live.report);
    }

    /// Takes a new report.
    pub(super) fn update(&mut self, report: Report) {
        for vm in &report.vms {
            let past = self.past.entry(key(vm)).or_default();
            past.push_back((
                vm.guest.r#use + vm.backend.r#use,
                vm.guest.wait + vm.backend.wait,
            ));
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

    /// Returns the VMs that the filter lets through, in order.
    pub(super) fn vms(&self) -> Vec<&Vm> {
        let all = self.report.iter().flat_map(|report| &report.vms);
        all.filter(|vm| vm.name.contains(&self.filter)).collect()
    }

    /// Returns the index of the selected VM: the first unless the user selected another.
    pub(super) fn selected(&self) -> usize {
        let chosen = self.selected.as_ref();
        let place = chosen.and_then(|known| self.vms().iter().position(|vm| key(vm) == *known));
        place.unwrap_or(0)
    }

    /// Returns the CPUs that a VM and its backend used, and waited for, in each interval, the latest interval last.
    pub(super) fn past(&self, vm: &Vm) -> impl DoubleEndedIterator<Item = (f64, f64)> {
        self.past.get(&key(vm)).into_iter().flatten().copied()
    }

    /// Handles a key. Returns false if the user quits.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return true;
        }
        match key.code {
            KeyCode::Esc if self.help || !self.filter.is_empty() => {
                (self.help, self.filter) = (false, String::new());
            }
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p') => self.remedies = !self.remedies,
            KeyCode::Char('e') => {
                let explanation = self.explain_selected();
                let same = explanation == self.explanation;
                self.explanation = explanation.filter(|_| !same);
            }
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

    /// Returns the sentence about the selected VM's wait.
    fn explain_selected(&self) -> Option<String> {
        let vm = *self.vms().get(self.selected())?;
        Some(explain(vm, self.report.as_ref()?))
    }

    /// Handles a key while the user types the filter.
    fn type_filter(&mut self, code: KeyCode) {
        /// Most characters of a filter.
        const LONGEST: usize = 64;
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.vms().len().saturating_sub(1));
        self.selected = self.vms().get(place).map(|vm| key(vm));
        self.explanation = None;
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
        assert_eq!(state.past(state.vms()[0]).count(), HISTORY_LENGTH);
        state.update(report(&[]));
        assert!(state.past.is_empty());
    }

    #[test]
    fn a_filter_is_typed_kept_and_ended() {
        let mut state = State::default();
        state.update(report(&[("web-1", 0.9), ("web-2", 0.5), ("db", 0.1)]));
        for letter in ['/', 'w', 'q', '?'] {
            press(&mut state, KeyCode::Char(letter));
        }
        assert!(names(&state).is_empty() && !state.help);
        press(&mut state, KeyCode::Backspace);
        press(&mut state, KeyCode::Backspace);
        press(&mut state, KeyCode::Enter);
        assert_eq!(names(&state), ["web-1", "web-2"]);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), 1);
        assert!(press(&mut state, KeyCode::Esc), "ends the filter only");
        assert_eq!(names(&state).len(), 3);
        assert!(!press(&mut state, KeyCode::Esc));
    }

    #[test]
    fn e_explains_the_selected_vm_until_another_is_selected() {
        let mut state = State::default();
        press(&mut state, KeyCode::Char('e'));
        assert_eq!(state.explanation, None, "there is no VM");
        state.update(report(&[("web", 0.9), ("db", 0.1)]));
        press(&mut state, KeyCode::Char('e'));
        assert!(state.explanation.as_ref().unwrap().contains("web"));
        press(&mut state, KeyCode::Down);
        assert_eq!(state.explanation, None);
        press(&mut state, KeyCode::Char('e'));
        press(&mut state, KeyCode::Char('e'));
        assert_eq!(state.explanation, None, "again hides it");
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
