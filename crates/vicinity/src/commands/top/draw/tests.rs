use observe::report::ThreadSetName;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::commands::top::state::tests::report;

fn screen(width: u16, height: u16, state: &State) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn everything_is_on_a_wide_screen() {
    let mut state = State::default();
    state.update(report(&[("web", 1.0), ("database", 0.25)]));
    let screen = screen(180, 40, &state);
    for (_, title, _) in COLUMNS {
        assert!(screen.contains(title), "{title}\n{screen}");
    }
    for text in [
        "web",
        "database",
        "busy 150.0 %",
        "this program 0.10 %",
        "quit",
        "█",
    ] {
        assert!(screen.contains(text), "{text}\n{screen}");
    }
}

#[test]
fn the_matrix_has_senders_and_receivers() {
    let mut state = State::default();
    let mut report = report(&[("web", 0.5), ("db", 0.1)]);
    let pair = |from: &str, to: &str, bytes| observe::report::Pair {
        channel: observe::reading::Channel::Switch,
        network: "lan".into(),
        from: from.into(),
        to: to.into(),
        frames: 10.0,
        bytes,
    };
    report.pairs = vec![pair("web", "db", 2_500_000.0), pair("db", "vic0", 700.0)];
    state.update(report);
    state.press(ratatui::crossterm::event::KeyCode::Char('m').into());
    let shown = screen(120, 40, &state);
    for text in ["FROM", "2.5 MB", "700 B", "vic0", "traffic, switches"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    assert!(!shown.contains("THREAD"), "{shown}");

    let mut report = state.report.clone().unwrap();
    report.switches = Some(observe::report::Switches {
        watched: 0.5,
        pairs: vec![observe::report::SwitchPair {
            from: ThreadSetName::Backend("db".into()),
            to: ThreadSetName::Guest("web".into()),
            per_second: 1234.0,
        }],
    });
    state.update(report);
    state.press(ratatui::crossterm::event::KeyCode::Char('m').into());
    let shown = screen(120, 40, &state);
    for text in ["directly after", "└ db", "1234", "50.0 %"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    assert!(!shown.contains("2.5 MB"), "{shown}");
    state.press(ratatui::crossterm::event::KeyCode::Char('m').into());
    assert!(screen(120, 40, &state).contains("THREAD"));
}

#[test]
fn the_history_is_there_before_all_columns_are() {
    let mut state = State::default();
    state.update(report(&[("web", 0.5)]));
    let screen = screen(WIDE + MARK_WIDTH, 12, &state);
    assert!(screen.contains("USE, WAIT"), "{screen}");
    assert!(screen.contains("BYTES/s"), "{screen}");
    assert!(!screen.contains("PAGES/s"), "{screen}");
}

#[test]
fn problems_are_under_the_head_and_help_is_over_everything() {
    let mut live = crate::live::tests::live(&[("web", 0.5)]);
    live.problems = crate::live::tests::problems(6, live.at);
    let mut state = State::default();
    state.update_live(live);
    let shown = screen(120, 40, &state);
    let at = |text: &str| {
        shown
            .find(text)
            .unwrap_or_else(|| panic!("{text}\n{shown}"))
    };
    assert!(at("busy") < at("vm0 takes no frame") && at("vm0 takes no frame") < at("USE %"));
    assert!(at("vicinity port show lan vm0") < at("and 2 more"));
    assert!(shown.contains("90 s"), "{shown}");
    state.press(ratatui::crossterm::event::KeyCode::Char('?').into());
    assert!(screen(120, 40, &state).contains("show or hide this help"));
    for (width, height) in [(1, 1), (20, 3), (80, 5)] {
        screen(width, height, &state);
    }
}

#[test]
fn help_has_every_key_whole_until_its_key_is_pressed_again() {
    let mut state = State::default();
    state.update(report(&[("web", 0.5)]));
    let before = screen(120, 40, &state);
    state.press(ratatui::crossterm::event::KeyCode::Char('?').into());
    let help = screen(120, 40, &state);
    for (key, what) in crate::commands::top::overlay::KEYS {
        let line = help.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("{what}\n{help}"));
        assert!(line.contains(&format!("{key:>6}  {what}")), "{line}");
    }
    // The figures continue under it.
    state.update(report(&[("db", 0.5)]));
    assert!(screen(120, 40, &state).contains("show or hide this help"));
    state.update(report(&[("web", 0.5)]));
    state.press(ratatui::crossterm::event::KeyCode::Char('?').into());
    let after = screen(120, 40, &state);
    assert!(!after.contains("show or hide this help"), "{after}");
    assert_eq!(before.contains("web"), after.contains("web"));
}

#[test]
fn a_narrow_screen_has_what_matters_most() {
    let mut state = State::default();
    state.update(report(&[("web", 0.5)]));
    let screen = screen(80, 12, &state);
    for text in ["web", "USE %", "WAIT %", "BYTES/s"] {
        assert!(screen.contains(text), "{text}\n{screen}");
    }
    assert!(!screen.contains("PAGES/s"), "{screen}");
}

#[test]
fn no_size_is_too_small() {
    let mut state = State::default();
    for vms in [&[][..], &[("web", 0.5)]] {
        state.update(report(vms));
        for (width, height) in [(1, 1), (20, 3), (300, 100)] {
            screen(width, height, &state);
        }
    }
}
