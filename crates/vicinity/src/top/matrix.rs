//! The traffic matrix: who sends to whom over Vicinity's networks.

use observe::report::Pair;
use ratatui::layout::{Alignment, Constraint};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

use crate::table;

/// Columns of a name, and of a field.
const NAME: u16 = 16;
const FIELD: u16 = 12;

/// The busiest senders and receivers for which there is room, and bytes a second between them.
pub(super) fn draw(pairs: &[Pair], width: u16, height: u16) -> Table<'static> {
    let columns = usize::from(width.saturating_sub(NAME) / (FIELD + 1));
    // The frame and the head take a line each.
    let rows = usize::from(height.saturating_sub(2));
    let receivers: Vec<&str> = busiest(pairs, |pair| &pair.to).take(columns).collect();
    let senders: Vec<&str> = busiest(pairs, |pair| &pair.from).take(rows).collect();
    let field = |from: &str, to: &str| {
        let those = pairs
            .iter()
            .filter(|pair| pair.from == from && pair.to == to);
        let bytes: f64 = those.map(|pair| pair.bytes).sum();
        right(if bytes > 0.0 {
            rate(bytes)
        } else {
            "·".to_owned()
        })
    };
    let lines = senders.iter().map(|from| {
        let mut cells = vec![Cell::from(Line::from((*from).to_owned()).bold())];
        cells.extend(receivers.iter().map(|to| field(from, to)));
        Row::new(cells)
    });
    let mut head = vec![Cell::from("FROM \\ TO")];
    head.extend(receivers.iter().map(|to| right((*to).to_owned())));
    let mut widths = vec![Constraint::Length(NAME)];
    widths.extend(receivers.iter().map(|_| Constraint::Length(FIELD)));
    let title = match pairs.is_empty() {
        true => " Nobody sends to anybody over Vicinity's networks ",
        false => " Bytes a second from each VM to each other, over Vicinity's networks ",
    };
    Table::new(lines.collect::<Vec<_>>(), widths)
        .header(Row::new(head).style(Style::new().dim()))
        .column_spacing(1)
        .block(Block::new().borders(Borders::TOP).title(title.bold()))
}

/// Names by what they have to do with bytes, most first. The pairs are in that order.
fn busiest<'p>(
    pairs: &'p [Pair],
    name: impl Fn(&'p Pair) -> &'p String,
) -> impl Iterator<Item = &'p str> {
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        let name = name(pair).as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter()
}

/// The pairs as a plain table; nothing when there are none.
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
