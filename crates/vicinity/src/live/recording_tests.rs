//! Tests of recordings: what was recorded comes back, and hostile ones are refused.

use serde_json::json;

use super::names::printable;
use super::recording::{Recording, RecordingError};
use super::tests::{live, port, problems, space};
use super::*;
use crate::status::State;

fn replay(text: &[u8]) -> Result<Vec<Live>, RecordingError> {
    let mut recording = Recording::new(text);
    let mut all = Vec::new();
    while let Some(live) = recording.next()? {
        all.push(live);
    }
    Ok(all)
}

#[test]
fn a_recording_has_what_was_recorded() {
    let mut recorded = live(&[("web", 0.5), ("db", 0.1)]);
    recorded.problems = problems(2, recorded.at);
    recorded.ports = sampler::live_ports(&[port("web", State::Running)], &[], 1.0);
    recorded.spaces = vec![space(true, 1)];
    let line = serde_json::to_string(&recorded).unwrap();
    let all = replay(format!("{line}\n\n{line}").as_bytes()).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(serde_json::to_string(&all[1]).unwrap(), line);
}

#[test]
fn a_newer_field_is_ignored_and_a_missing_list_is_empty() {
    let mut value = serde_json::to_value(live(&[("web", 0.5)])).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.insert("novelty".to_owned(), json!([1]));
    for gone in [
        "problems", "networks", "ports", "direct", "spaces", "messages",
    ] {
        fields.remove(gone);
    }
    assert_eq!(replay(value.to_string().as_bytes()).unwrap().len(), 1);
}

#[test]
fn hostile_recordings_are_refused_with_their_line_and_cannot_control_a_terminal() {
    let good = serde_json::to_string(&live(&[("web", 0.5)])).unwrap();
    let refused = |text: &str| replay(text.as_bytes()).unwrap_err().to_string();
    for bad in [
        "{",
        "[]",
        "null",
        "{\"version\":1}",
        "\u{0}",
        "{\"version\":-1}",
    ] {
        let said = refused(&format!("{good}\n{bad}\n"));
        assert!(said.contains("line 2"), "{bad:?}: {said}");
    }
    let newer = good.replacen("\"version\":1", "\"version\":2", 1);
    assert!(refused(&newer).contains("version 2"));
    assert!(refused(&good[..good.len() / 2]).contains("line 1"));
    let long = format!("{good}\n\"{}\"", "a".repeat(17 << 20));
    assert!(refused(&long).contains("line 2") && refused(&long).contains("16 MiB"));
    let names: Vec<_> = (0..5000).map(|vm| vm.to_string()).collect();
    let many: Vec<_> = names.iter().map(|vm| (vm.as_str(), 0.0)).collect();
    let many = serde_json::to_string(&live(&many)).unwrap();
    assert!(refused(&many).contains("too many"));
    let hostile = serde_json::to_string(&live(&[("\u{1b}[2J\n", 0.5)])).unwrap();
    let clean = replay(hostile.as_bytes()).unwrap();
    let name = &clean[0].report.vms[0].name;
    assert_eq!(*name, printable(name));
}

#[test]
fn mutated_recordings_never_panic() {
    let mut recorded = live(&[("web", 0.5), ("db", 0.1)]);
    recorded.problems = problems(1, recorded.at);
    recorded.ports = sampler::live_ports(&[port("web", State::Running)], &[], 1.0);
    let good = serde_json::to_vec(&recorded).unwrap();
    let mut random = fastrand::Rng::with_seed(26);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *random.choice(b"0123456789\"{}[],:-e.").unwrap()),
            }
        }
        match replay(&bytes) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(
        read > 100 && refused > 100,
        "{read} read, {refused} refused"
    );
}
