//! The terminal: set up, kept up to date, and given back as it was.

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::draw::draw;
use super::source::Source;
use super::state::State;
use crate::commands::failure::Failure;

/// SIGTERM is noticed within so long.
const SLICE: Duration = Duration::from_millis(250);

/// Shows reports until the user quits, or SIGTERM. The terminal is restored in every case, on a
/// panic too (`ratatui::try_init` sees to that).
pub(super) fn run(source: &mut Source, interval: Duration) -> Result<(), Failure> {
    let mut terminal = ratatui::try_init()?;
    let ended = watch(&mut terminal, source, interval);
    ratatui::try_restore()?;
    ended
}

fn watch(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    interval: Duration,
) -> Result<(), Failure> {
    let mut state = State::default();
    source.next();
    // The first figures come soon.
    let mut next = Instant::now() + interval.min(SLICE);
    terminal.draw(|frame| draw(frame, &state))?;
    loop {
        vm_harness::interrupt::check()?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.min(SLICE))? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    if !state.press(key) {
                        return Ok(());
                    }
                }
                Event::Resize(..) => {}
                _ => continue,
            }
        } else if Instant::now() >= next {
            next = Instant::now() + interval;
            if let Some(report) = source.next() {
                state.update(report);
            }
        } else {
            continue;
        }
        terminal.draw(|frame| draw(frame, &state))?;
    }
}
