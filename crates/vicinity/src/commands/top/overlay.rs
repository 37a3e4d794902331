//! The parts of the screen above and over the table: the problems, the help, the filter, and an explanation.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::state::State;
use crate::live::{Problem, Severity};

/// The most problems that the screen lists.
const SHOWN: usize = 4;

/// Every key, and what it does.
pub(super) const KEYS: [(&str, &str); 11] = [
    ("← →", "choose the column to sort by"),
    ("r", "reverse the order"),
    ("↑ ↓", "select a VM"),
    ("Enter", "show or hide the selected VM's threads"),
    ("m", "show the traffic, then the switches between VMs"),
    ("e", "explain why the selected VM waits"),
    (
        "/",
        "show VMs with a text in their names; Enter keeps it, Esc ends it",
    ),
    ("p", "show or hide the remedies of the problems"),
    ("?", "show or hide this help"),
    ("q", "quit; so do Ctrl-C and, without a filter, Esc"),
    (
        "",
        "WAIT % is yellow from 5 and red from 20: the VM's users notice it",
    ),
];

/// Returns the lines that the problems take.
pub(super) fn problem_lines(state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for problem in state.problems.iter().take(SHOWN) {
        lines.push(line(problem, state.at));
        if let Some(remedy) = problem.remedy.as_ref().filter(|_| state.remedies) {
            lines.push(Line::from(format!("    {remedy}")).fg(Color::Cyan));
        }
    }
    let more = state.problems.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(Line::from(format!("  and {more} more: `vicinity doctor`, or the page")).dim());
    }
    if let Some(text) = &state.explanation {
        lines.push(Line::from(text.clone()).fg(Color::Cyan));
    }
    if state.is_typing || !state.filter.is_empty() {
        let cursor = if state.is_typing { "▏" } else { "" };
        lines.push(Line::from(format!("filter: {}{cursor}", state.filter)).bold());
    }
    lines
}

fn line(problem: &Problem, at: f64) -> Line<'static> {
    let colour = match problem.severity {
        Severity::Critical => Color::Red,
        Severity::Warning => Color::Yellow,
    };
    Line::from(vec![
        Span::styled("▌ ", Style::new().fg(colour)),
        Span::styled(format!("{} ", problem.held(at)), Style::new().dim()),
        Span::raw(problem.text.clone()),
    ])
}

/// Draws the list of keys over everything.
pub(super) fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<_> = KEYS
        .iter()
        .map(|(key, what)| Line::from(vec![format!("{key:>6}  ").bold(), (*what).into()]))
        .collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let area = centred(frame.area(), 76, height);
    let block = Block::bordered().title(" Keys ");
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(block);
    frame.render_widget(Clear, area);
    frame.render_widget(text, area);
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let [area] = Layout::horizontal([Constraint::Max(width)])
        .flex(Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Max(height)])
        .flex(Flex::Center)
        .areas(area);
    area
}
