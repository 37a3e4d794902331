//! Draws the screen.

use observe::report::Vm;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};

use super::column::{COLUMNS, Column, DISPENSABLE, percent};
use super::matrix::Matrix;
use super::overlay::{draw_help, problem_lines};
use super::plain;
use super::state::{LowerPane, State};

/// Least width of a useful history chart, in characters.
const HISTORY_MINIMUM: u16 = 8;
/// Marks the selected VM.
const MARK: &str = "▶ ";
const MARK_WIDTH: u16 = 2;
/// From this width on, the screen shows the history rather than the less important columns.
const WIDE: u16 = 120;
/// Least width of the history on such a screen.
const HISTORY: u16 = 16;
/// Lines of the selected VM's threads and notes, including the frame.
const DETAILS: u16 = 12;

const HELP: [(&str, &str); 9] = [
    ("←→", "sort by"),
    ("r", "reverse"),
    ("↑↓", "select"),
    ("Enter", "threads"),
    ("m", "traffic, switches"),
    ("e", "explain"),
    ("/", "filter"),
    ("?", "keys"),
    ("q", "quit"),
];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let room = frame.area().height > 2 * DETAILS;
    let wanted = state.details || state.below != LowerPane::Threads;
    let details = wanted && !state.vms().is_empty() && room;
    let problems = problem_lines(state);
    // At least half of the screen is the table's.
    let most = usize::from(frame.area().height / 2).saturating_sub(2);
    let problem_height = u16::try_from(problems.len().min(most)).unwrap_or(0);
    let heights = [
        Constraint::Length(2),
        Constraint::Length(problem_height),
        Constraint::Min(3),
        Constraint::Length(if details { DETAILS } else { 0 }),
        Constraint::Length(1),
    ];
    let [head, stuck, table, below, help] = Layout::vertical(heights).areas(frame.area());
    draw_head(frame, head, state);
    frame.render_widget(Paragraph::new(problems), stuck);
    draw_table(frame, table, state);
    if details {
        draw_below(frame, below, state);
    }
    frame.render_widget(help_line(), help);
    if state.help {
        draw_help(frame);
    }
}

fn draw_below(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let report = state.report.as_ref();
    let matrix = match state.below {
        LowerPane::Traffic => {
            let pairs = report.map_or(&[][..], |report| &report.pairs);
            Some(Matrix::of_traffic(pairs))
        }
        LowerPane::Switches => {
            let switches = report.and_then(|report| report.switches.as_ref());
            Some(Matrix::of_switches(switches))
        }
        LowerPane::Threads => None,
    };
    if let Some(matrix) = matrix {
        frame.render_widget(matrix.draw(area.width, area.height), area);
    } else if let Some(vm) = state.vms().get(state.selected()) {
        draw_details(frame, area, vm, state);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let lines = match &state.report {
        None => vec![Line::from("measuring …")],
        Some(report) => vec![
            Line::from(plain::host(&report.host)).bold(),
            Line::from(match &report.vicinity {
                Some(vicinity) => plain::daemon(vicinity),
                None => "no Vicinity daemon runs here: only NICs on taps have traffic counters"
                    .to_owned(),
            }),
        ],
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let (columns, left) = visible_columns(area.width.saturating_sub(MARK_WIDTH));
    let mut widths: Vec<_> = columns
        .iter()
        .map(|(_, _, width)| Constraint::Length(*width))
        .collect();
    let mut titles: Vec<_> = columns.iter().map(|column| title(column, state)).collect();
    if left >= HISTORY_MINIMUM {
        widths.push(Constraint::Length(left));
        titles.push(Cell::from("USE, WAIT"));
    }
    let vms = state.vms();
    let rows = vms.iter().map(|vm| {
        let mut cells: Vec<_> = columns
            .iter()
            .map(|(column, _, _)| cell(*column, vm))
            .collect();
        if left >= HISTORY_MINIMUM {
            cells.push(Cell::from(history(state, vm, left.into())));
        }
        Row::new(cells).height(2)
    });
    let table = Table::new(rows, widths)
        .header(Row::new(titles).style(Style::new().reversed()))
        .column_spacing(1)
        // A mark and no background: the terminal may be light or dark.
        .highlight_symbol(MARK);
    let mut selection = TableState::new().with_selected(Some(state.selected()));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// Returns the columns for which there is room, and the width that remains.
fn visible_columns(width: u16) -> (Vec<(Column, &'static str, u16)>, u16) {
    let mut columns = COLUMNS.to_vec();
    let needed = |columns: &[(Column, &str, u16)]| {
        columns.iter().map(|(_, _, width)| width + 1).sum::<u16>()
    };
    let history = if width >= WIDE { HISTORY } else { 0 };
    for dispensable in DISPENSABLE {
        if needed(&columns) + history <= width {
            break;
        }
        columns.retain(|(column, _, _)| *column != dispensable);
    }
    let left = width.saturating_sub(needed(&columns));
    (columns, left)
}

fn title(column: &(Column, &'static str, u16), state: &State) -> Cell<'static> {
    let (column, title, _) = *column;
    let style = match column == state.sort {
        true => Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD),
        false => Style::new(),
    };
    let alignment = match column {
        Column::Name => Alignment::Left,
        _ => Alignment::Right,
    };
    Cell::from(Text::from(title).alignment(alignment)).style(style)
}

fn cell(column: Column, vm: &Vm) -> Cell<'static> {
    let [guest, backend] = column.cell(vm);
    let (alignment, guest) = match column {
        Column::Name => (Alignment::Left, Line::from(guest).bold()),
        Column::Wait => (
            Alignment::Right,
            Line::from(guest).style(wait_style(vm.guest.wait)),
        ),
        _ => (Alignment::Right, Line::from(guest)),
    };
    let backend = match column {
        Column::Name => Line::from(backend).dim(),
        Column::Wait => Line::from(backend).style(wait_style(vm.backend.wait)),
        _ => Line::from(backend),
    };
    Cell::from(Text::from(vec![guest, backend]).alignment(alignment))
}

/// Returns the colour for a thread's waiting time: the user notices when a thread waits for a CPU.
fn wait_style(wait: f64) -> Style {
    match wait {
        ..0.05 => Style::new(),
        ..0.2 => Style::new().fg(Color::Yellow),
        _ => Style::new().fg(Color::Red),
    }
}

/// Draws the history as two lines, of use and of wait, with the latest interval at the right. The top of a line is one
/// CPU, or more if the VM used or waited for more.
fn history(state: &State, vm: &Vm, width: usize) -> Text<'static> {
    const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const FULL: f64 = 8.0;
    let (used, waited): (Vec<f64>, Vec<f64>) = state.past(vm).rev().take(width).unzip();
    let line = |past: &[f64]| -> String {
        let top = past.iter().copied().fold(1.0, f64::max);
        let step = |figure: f64| {
            let height = (figure / top * FULL).clamp(0.0, FULL).ceil();
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 8"
            )]
            STEPS.get(height as usize).copied().unwrap_or(' ')
        };
        let drawn: String = past.iter().rev().map(|figure| step(*figure)).collect();
        format!("{drawn:>width$}")
    };
    Text::from(vec![
        Line::from(line(&used)).fg(Color::Green),
        Line::from(line(&waited)).fg(Color::Red),
    ])
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, vm: &Vm, state: &State) {
    let accelerator = vm.accelerator.as_deref().unwrap_or("accelerator unknown");
    let title = format!(" {} · process {} · {accelerator} ", vm.name, vm.pid);
    let [threads, notes] =
        Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]).areas(area);
    let block = Block::new().borders(Borders::TOP).title(title.bold());
    frame.render_widget(thread_table(vm).block(block), threads);
    let block = Block::new()
        .borders(Borders::TOP | Borders::LEFT)
        .title(" Notes ");
    let notes_text = Paragraph::new(notes_of(vm, state))
        .wrap(Wrap { trim: true })
        .block(block);
    frame.render_widget(notes_text, notes);
}

fn thread_table(vm: &Vm) -> Table<'static> {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let mut threads: Vec<_> = vm.threads.iter().collect();
    threads.sort_by(|a, b| {
        b.activity
            .r#use
            .total_cmp(&a.activity.r#use)
            .then(a.id.cmp(&b.id))
    });
    let rows = threads.into_iter().map(move |thread| {
        let activity = &thread.activity;
        let figures = [activity.r#use, activity.wait, activity.block];
        let mut cells = vec![
            right(thread.id.to_string()),
            Cell::from(thread.name.clone()),
        ];
        cells.extend(figures.map(|figure| right(percent(figure))));
        Row::new(cells)
    });
    let widths = [8, 16, 7, 7, 8].map(Constraint::Length);
    let titles = ["THREAD", "NAME", "USE %", "WAIT %", "BLOCK %"].map(|title| {
        let alignment = if title == "NAME" {
            Alignment::Left
        } else {
            Alignment::Right
        };
        Cell::from(Text::from(title).alignment(alignment))
    });
    Table::new(rows, widths).header(Row::new(titles).dim())
}

fn notes_of(vm: &Vm, state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if vm.backend_in_vicinity > 0.0 {
        lines.push(format!(
            "{} % of a CPU in Vicinity's workers, divided among VMs by frames and bytes",
            percent(vm.backend_in_vicinity)
        ));
    }
    if let Some(polled) = vm.halt_poll {
        let polled = percent(polled);
        lines.push(format!(
            "{polled} % of a CPU in halt polling, which USE excludes"
        ));
    }
    if let Some(group) = &vm.cgroup {
        let weight = group
            .weight
            .map_or("-".to_owned(), |weight| weight.to_string());
        let throttled = group.throttled.map_or("-".to_owned(), percent);
        lines.push(format!(
            "control group {} (v{}), weight {weight}, throttled {throttled} %",
            group.path, group.version
        ));
    }
    lines.extend(vm.notes.iter().map(|note| format!("* {note}")));
    let unknown = state.report.iter().flat_map(|report| &report.cannot_read);
    let unknown = unknown.map(|reason| Line::from(format!("not measured: {reason}")).dim());
    lines.into_iter().map(Line::from).chain(unknown).collect()
}

fn help_line() -> Line<'static> {
    let mut spans = Vec::new();
    for (key, what) in HELP {
        spans.push(Span::from(format!(" {key} ")).reversed());
        spans.push(Span::from(format!(" {what}  ")));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests;
