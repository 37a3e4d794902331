//! Prometheus' alerts, Grafana's dashboards and Cockpit's package, by the programs that read them.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{root, vicinity};
use serde_json::Value;

fn packaging(path: &str) -> PathBuf {
    root().join("packaging").join(path)
}

/// Runs a program, and returns what it prints.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; run scripts/setup test"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{said}");
    text
}

/// Returns the values of a key of a YAML file that has one key on each line.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let key = format!("{key}: ");
    let lines = text.lines().map(|line| line.trim_start_matches([' ', '-']));
    lines.filter_map(|line| line.strip_prefix(&key)).collect()
}

/// Returns the names of Vicinity's metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("vicinity_"));
    let whole = ours.map(|name| name.strip_suffix("_bucket").unwrap_or(name));
    whole.map(str::to_owned).collect()
}

/// Returns the metrics that the page's `/metrics` has, by the documents that describe them.
fn known() -> BTreeSet<String> {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let mut known = metrics(&read("docs/reference/metrics.md"));
    known.extend(metrics(&read("docs/observer.md")));
    known
}

#[test]
fn each_alert_fires_and_is_silent_and_has_a_page_that_helps() {
    let folder = packaging("prometheus");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "vicinity.rules.yml"]);
    output(promtool.current_dir(&folder));
    let mut promtool = Command::new("promtool");
    promtool.args(["test", "rules", "vicinity.test.yml"]);
    output(promtool.current_dir(&folder));
    let rules = fs::read_to_string(folder.join("vicinity.rules.yml")).unwrap();
    let tests = fs::read_to_string(folder.join("vicinity.test.yml")).unwrap();
    let alerts = values(&rules, "alert");
    assert!(alerts.len() <= 12, "{alerts:?}");
    let tested = values(&tests, "alertname");
    for alert in &alerts {
        assert!(tested.contains(alert), "{alert} has no test");
    }
    let remedies = values(&rules, "remedy");
    assert_eq!(remedies.len(), alerts.len());
    for remedy in remedies.iter().filter(|it| it.starts_with("vicinity ")) {
        let words = remedy.replace("{{ $labels.", "").replace(" }}", "");
        let mut command = vicinity();
        command.args(words.split(' ').skip(1)).arg("--help");
        output(&mut command);
    }
    let runbooks = values(&rules, "runbook");
    assert_eq!(runbooks.len(), alerts.len());
    for runbook in runbooks {
        let path = runbook.strip_prefix("/usr/share/doc/vicinity/").unwrap();
        let (path, anchor) = path.split_once('#').unwrap_or((path, ""));
        let page = fs::read_to_string(root().join(path)).unwrap();
        let headings = page.lines().filter(|line| line.starts_with('#'));
        let mut anchors = headings.map(|heading| {
            let letters = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = letters
                .chars()
                .filter(|it| it.is_alphanumeric() || " -".contains(*it));
            kept.map(|it| if it == ' ' { '-' } else { it })
                .collect::<String>()
        });
        assert!(
            anchor.is_empty() || anchors.any(|it| it == anchor),
            "{runbook}"
        );
    }
    let expressions: String = rules
        .lines()
        .filter(|line| !line.contains("runbook"))
        .collect();
    let unknown: Vec<_> = metrics(&expressions)
        .difference(&known())
        .cloned()
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn dashboards_have_core_panels_and_valid_expressions() {
    /// Panels that every Grafana has.
    const CORE: [&str; 3] = ["timeseries", "stat", "table"];
    let mut rules = "groups:\n  - name: dashboards\n    rules:\n".to_owned();
    let mut count = 0;
    for name in ["vicinity-host", "vicinity-vm"] {
        let text = fs::read_to_string(packaging(&format!("grafana/{name}.json"))).unwrap();
        let board: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(board["uid"], name);
        assert_eq!(board["__inputs"][0]["name"], "DS_PROMETHEUS");
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            assert!(CORE.contains(&panel["type"].as_str().unwrap()), "{panel}");
            assert!(ids.insert(panel["id"].as_u64()), "an id is used twice");
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let unknown: Vec<_> = metrics(expression).difference(&known()).cloned().collect();
                assert!(unknown.is_empty(), "{unknown:?}");
                rules += &format!(
                    "      - record: a:{count}\n        expr: {}\n",
                    Value::from(expression)
                );
                count += 1;
            }
        }
    }
    assert!(count > 20);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    fs::write(&file, rules).unwrap();
    output(Command::new("promtool").args(["check", "rules"]).arg(file));
}

#[test]
fn cockpit_finds_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("cockpit/vicinity");
    fs::create_dir_all(&place).unwrap();
    fs::copy(
        packaging("cockpit/manifest.json"),
        place.join("manifest.json"),
    )
    .unwrap();
    let mut bridge = Command::new("cockpit-bridge");
    let listed = output(bridge.arg("--packages").env("XDG_DATA_HOME", folder.path()));
    let found = listed.lines().find(|line| line.starts_with("vicinity "));
    assert!(
        found.is_some_and(|line| line.contains("Vicinity")),
        "{listed}"
    );
}
