//! The terminal: set up, updated, and restored at the end.

use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::draw::draw;
use super::record::Recorder;
use super::source::Source;
use super::state::State;
use crate::commands::failure::Failure;

/// Longest time until the command reacts to SIGTERM.
const SLICE: Duration = Duration::from_millis(250);

/// Shows reports until the user quits, or until SIGTERM. The terminal is restored in every case.
/// `ratatui::try_init` restores it also after a panic.
pub(super) fn run(
    source: &mut Source,
    recorder: &mut Recorder,
    interval: Duration,
) -> Result<(), Failure> {
    let mut terminal = ratatui::try_init()?;
    let ended = watch(&mut terminal, source, recorder, interval);
    ratatui::try_restore()?;
    ended
}

fn watch(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    recorder: &mut Recorder,
    interval: Duration,
) -> Result<(), Failure> {
    let mut state = State::default();
    source.begin();
    // Show the first figures early.
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
            if let Some(live) = source.next()? {
                recorder.add(&live)?;
                state.update_live(live);
            }
        } else {
            continue;
        }
        terminal.draw(|frame| draw(frame, &state))?;
    }
}
