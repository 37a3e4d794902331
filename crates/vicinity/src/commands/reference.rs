//! Generates the reference pages from the code. A test compares docs/reference with them, so that
//! the pages are never out of date.

use std::fs;
use std::path::Path;

use clap::Command;

use super::failure::{EXIT_CODES, Failure};
use crate::{config, serve};

/// The note in each page that the page is generated.
const GENERATED_NOTE: &str =
    "<!-- Made by `vicinity reference docs/reference`. Change the code instead. -->\n";

/// Writes all pages into a folder.
pub(crate) fn write(command: Command, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    for (name, page) in [
        ("cli.md", commands(command)),
        ("config.md", configuration()),
        ("metrics.md", metrics()),
        ("api.md", api()),
    ] {
        fs::write(folder.join(name), format!("{GENERATED_NOTE}\n{page}"))?;
    }
    Ok(())
}

fn commands(mut command: Command) -> String {
    command.build();
    let mut text = "# Commands\n\n| exit code | |\n|---|---|\n".to_owned();
    for (code, meaning) in EXIT_CODES {
        text += &format!("| {code} | {meaning} |\n");
    }
    describe(&mut text, &mut command);
    text
}

/// Describes a command and its subcommands.
fn describe(text: &mut String, command: &mut Command) {
    let name = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    *text += &format!(
        "\n## {name}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    let below = command.get_subcommands_mut();
    let below = below.filter(|it| !it.is_hide_set() && it.get_name() != "help");
    below.for_each(|it| describe(text, it));
}

fn configuration() -> String {
    let mut text =
        "# Configuration\n\nThe keys, as a path of tables: `network.port.vm` is `vm` in a \
                    `[[network.port]]`.\n\n"
            .to_owned();
    for key in config::keys() {
        text += &format!("- `{key}`\n");
    }
    text += "\n## Each explained\n\nThis is the default configuration, which `vicinity config` prints.\n\n";
    text + "```toml\n" + config::DEFAULT + "```\n"
}

fn metrics() -> String {
    let mut text = "# Metrics\n\nWhat `vicinity metrics` and `GET /metrics` print, in Prometheus' text \
                    format. A port has the labels `network` and `vm`, a space has `vm`.\n\n| name | kind | what |\n|---|---|---|\n"
        .to_owned();
    let series = serve::metrics();
    let kinds: Vec<_> = series
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let helps = series
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    for (name, help) in helps {
        let kind = kinds.iter().find(|(it, _)| *it == name);
        let kind = kind.map_or("", |(_, kind)| kind);
        text += &format!("| `{name}` | {kind} | {help} |\n");
    }
    text
}

fn api() -> String {
    let mut text = "# Control API\n\nHTTP and JSON on `control.sock` in the runtime folder. \
                    `GET /v1/openapi.json` has the full description, with every field.\n\n\
                    | call | what |\n|---|---|\n"
        .to_owned();
    let document: serde_json::Value = serde_json::from_str(serve::OPENAPI).unwrap_or_default();
    let paths = document.get("paths").and_then(|paths| paths.as_object());
    for (path, calls) in paths.into_iter().flatten() {
        for (method, call) in calls.as_object().into_iter().flatten() {
            let summary = call.get("summary").and_then(|it| it.as_str());
            if let Some(summary) = summary {
                let method = method.to_uppercase();
                text += &format!("| `{method} {path}` | {summary} |\n");
            }
        }
    }
    text
}
