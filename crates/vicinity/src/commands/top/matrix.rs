//! Matrices: which VM sends to which over Vicinity's networks, and which VM's threads run directly
//! after which others.

use observe::report::{Pair, Switches, ThreadSetName};
use ratatui::layout::{Alignment, Constraint};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

use super::column::{count, percent};
use crate::table;

/// Widths of a name, and of a field.
const NAME: u16 = 16;
const FIELD: u16 = 12;

/// Most pairs in a plain table of context switches.
const PLAIN: usize = 16;

/// A matrix, as a list of its non-empty fields.
pub(super) struct Matrix {
    title: String,
    /// From, to, figure; the largest first.
    fields: Vec<(String, String, f64)>,
    text: fn(f64) -> String,
}

impl Matrix {
    /// Returns the matrix of traffic, in bytes a second.
    pub(super) fn of_traffic(pairs: &[Pair]) -> Self {
        let title = match pairs.is_empty() {
            true => " No VM sends to another VM over Vicinity's networks ",
            false => " Bytes per second from each VM to each other VM, over Vicinity's networks ",
        };
        let field = |pair: &Pair| (pair.from.clone(), pair.to.clone(), pair.bytes);
        Self {
            title: title.to_owned(),
            fields: pairs.iter().map(field).collect(),
            text: rate,
        }
    }

    /// Returns the matrix of context switches, in switches a second.
    pub(super) fn of_switches(switches: Option<&Switches>) -> Self {
        let pairs = switches.map_or(&[][..], |switches| &switches.pairs);
        let title = match switches {
            None => {
                " This host does not record context switches: press m; the notes have the reason "
                    .to_owned()
            }
            Some(switches) => format!(
                " Times per second that the threads of one ran directly after those of another (└ back-ends, \
                    net- workers; recorded for {} % of the time) ",
                percent(switches.watched)
            ),
        };
        let field = |pair: &observe::report::SwitchPair| {
            (set_name(&pair.from), set_name(&pair.to), pair.per_second)
        };
        Self {
            title,
            fields: pairs.iter().map(field).collect(),
            text: count,
        }
    }

    /// Draws the busiest rows and columns for which there is room.
    pub(super) fn draw(&self, width: u16, height: u16) -> Table<'static> {
        let columns = usize::from(width.saturating_sub(NAME) / (FIELD + 1));
        // The frame and the header take one line each.
        let rows = usize::from(height.saturating_sub(2));
        let to: Vec<&str> = busiest(self.fields.iter().map(|(_, to, _)| to), columns);
        let from: Vec<&str> = busiest(self.fields.iter().map(|(from, ..)| from), rows);
        let field = |row: &str, column: &str| {
            let those = self.fields.iter();
            let those = those.filter(|(from, to, _)| from == row && to == column);
            let sum: f64 = those.map(|(.., figure)| figure).sum();
            right(if sum > 0.0 {
                (self.text)(sum)
            } else {
                "·".to_owned()
            })
        };
        let lines = from.iter().map(|row| {
            let mut cells = vec![Cell::from(Line::from((*row).to_owned()).bold())];
            cells.extend(to.iter().map(|column| field(row, column)));
            Row::new(cells)
        });
        let mut head = vec![Cell::from("FROM \\ TO")];
        head.extend(to.iter().map(|column| right((*column).to_owned())));
        let mut widths = vec![Constraint::Length(NAME)];
        widths.extend(to.iter().map(|_| Constraint::Length(FIELD)));
        Table::new(lines.collect::<Vec<_>>(), widths)
            .header(Row::new(head).style(Style::new().dim()))
            .column_spacing(1)
            .block(
                Block::new()
                    .borders(Borders::TOP)
                    .title(self.title.clone().bold()),
            )
    }
}

/// Returns the first `most` different names of a list that starts with the busiest.
fn busiest<'n>(names: impl Iterator<Item = &'n String>, most: usize) -> Vec<&'n str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found.truncate(most);
    found
}

/// Returns a short name for a set of threads. A VM's backend has the same mark as its line in the
/// table.
fn set_name(set: &ThreadSetName) -> String {
    match set {
        ThreadSetName::Guest(vm) => vm.clone(),
        ThreadSetName::Backend(vm) => format!("└ {vm}"),
        ThreadSetName::Network(network) => format!("net-{network}"),
    }
}

/// Returns the pairs as a plain table, or an empty text if there are none.
pub(super) fn plain(pairs: &[Pair]) -> String {
    use table::Align::{Left, Right};
    if pairs.is_empty() {
        return String::new();
    }
    let head = [
        ("FROM", Left),
        ("TO", Left),
        ("NETWORK", Left),
        ("FRAMES/s", Right),
        ("BYTES/s", Right),
    ];
    let row = |pair: &Pair| {
        vec![
            pair.from.clone(),
            pair.to.clone(),
            pair.network.clone(),
            format!("{:.0}", pair.frames),
            rate(pair.bytes),
        ]
    };
    let rows: Vec<Vec<String>> = pairs.iter().map(row).collect();
    table::format(&head, &rows) + "\n"
}

/// Returns a plain table of which set of threads ran directly after which other; an empty text if that is not
/// known, or if no set ran directly after another.
pub(super) fn plain_switches(switches: Option<&Switches>) -> String {
    use table::Align::{Left, Right};
    let Some(switches) = switches.filter(|switches| !switches.pairs.is_empty()) else {
        return String::new();
    };
    let head = [("RAN", Left), ("THEN", Left), ("TIMES/s", Right)];
    let row = |pair: &observe::report::SwitchPair| {
        vec![
            set_name(&pair.from),
            set_name(&pair.to),
            count(pair.per_second),
        ]
    };
    let rows: Vec<Vec<String>> = switches.pairs.iter().take(PLAIN).map(row).collect();
    let left_out = switches.pairs.len().saturating_sub(PLAIN);
    let mut text = table::format(&head, &rows);
    if left_out > 0 {
        text += &format!("and {left_out} less frequent pairs: see --json\n");
    }
    if switches.watched < 0.995 {
        let seen = percent(switches.watched);
        text += &format!("(there was room for {seen} % of the interval; rates are of that)\n");
    }
    text + "\n"
}

fn rate(bytes: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of bytes is positive and far below 2^64"
    )]
    table::bytes(bytes as u64)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).alignment(Alignment::Right))
}
