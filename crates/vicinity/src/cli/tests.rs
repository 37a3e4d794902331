//! Tests of rules for every command.

use clap::Command as Clap;

use super::*;

/// Reasons why commands have no `--json`, each with the first or last words of these commands.
const WITHOUT: [(&str, &[&str]); 4] = [
    (
        "prints nothing that is to be read",
        &[
            "serve", "web", "reload", "capture", "man", "answer", "join", "leave", "add", "create",
            "set", "remove",
        ],
    ),
    (
        "has a format of its own",
        &["metrics", "libvirt-xml", "completions", "mpi-hosts"],
    ),
    ("is JSON", &["show"]),
    (
        "writes a report, as JSON too",
        &["demo", "selftest", "bench", "run", "resume", "report"],
    ),
];

/// Finds the visible subcommands below `command` that have no subcommands themselves, as words, and
/// whether each takes `--json`.
fn leaves(command: &Clap, above: &[String], found: &mut Vec<(Vec<String>, bool)>) {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let name = [above, &[below.get_name().to_owned()]].concat();
        match below.has_subcommands() {
            true => leaves(below, &name, found),
            false => {
                let json = below.get_arguments().any(|it| it.get_id() == "json");
                found.push((name, json));
            }
        }
    }
}

/// Prints JSON, and with `--fdb` a table for people, which `--json` turns into JSON.
const SHOWS_BOTH: [&str; 2] = ["network", "show"];

#[test]
fn whatever_prints_for_people_prints_json_too() {
    let mut found = Vec::new();
    leaves(&Cli::command(), &[], &mut found);
    assert!(found.len() > 40, "{found:?}");
    let excused = || WITHOUT.iter().flat_map(|(_, words)| *words);
    let concerns = |name: &[String], word: &str| {
        let ends = [name.first(), name.last()];
        ends.iter().flatten().any(|it| *it == word)
    };
    for (name, json) in &found {
        let excused = *name != SHOWS_BOTH && excused().any(|word| concerns(name, word));
        assert!(
            *json != excused,
            "{name:?}: --json {json}, excused {excused}"
        );
    }
    for word in excused() {
        assert!(
            found.iter().any(|(name, _)| concerns(name, word)),
            "no command {word}"
        );
    }
}
