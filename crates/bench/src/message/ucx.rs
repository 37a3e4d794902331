//! Measures UCX over shared memory with `ucx_perftest`: one process is the server and one is the client.

use std::path::Path;

use vm_harness::error::{Error, Result};
use vm_harness::host;

use super::iterations::count;
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use crate::process::{Process, first_on};
use report::message_perf::Figures;

const PROGRAM: &str = "ucx_perftest";

/// TCP port on which the two sides connect before they share memory.
const PORT: u16 = 13_337;

/// Fields of a line of figures: messages, then latency in microseconds (the requested percentile, recent, all),
/// bandwidth (recent, all) and messages a second (recent, all).
const FIELDS: usize = 8;
const PERCENTILE: usize = 1;
const RATE: usize = 7;

/// Returns UCX's version.
pub(super) fn version() -> Result<String> {
    let mut command = host::command("ucx_info");
    command.arg("-v");
    let text = host::run(command).map_err(|error| match error {
        Error::MissingTool(_) => Error::Host(
            "ucx_perftest is not installed: run `scripts/setup bench` as root".to_owned(),
        ),
        other => other,
    })?;
    let words = text.split_whitespace();
    let mut numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    Ok(numbers.next().unwrap_or_default().to_owned())
}

pub(super) fn measure(length: u32, folder: &Path) -> Result<Figures> {
    let trips = count(length, 1 << 30, 50_000);
    let latency = |rank: &str| {
        let fields = run(folder, length, trips, &["-t", "tag_lat", "-R", rank])?;
        field(&fields, PERCENTILE)
    };
    let messages = count(length, 2 << 30, 1_000_000);
    let fields = run(folder, length, messages, &["-t", "tag_bw"])?;
    Ok(Figures {
        p50_us: latency("50")?,
        p99_us: latency("99")?,
        messages_per_s: field(&fields, RATE)?,
    })
}

fn run(folder: &Path, length: u32, messages: u64, test: &[&str]) -> Result<Vec<f64>> {
    let start = |cpu| {
        let mut command = first_on(cpu, folder, PROGRAM);
        command.args(["-p", &PORT.to_string()]);
        command.env("UCX_TLS", "posix,self");
        command
    };
    let mut server = Process::start("ucx", folder, start(SWITCH_CPU))?;
    server.until("UCX server's socket", |_| Ok(listens()))?;
    let mut client = start(GENERATOR_CPU);
    client.args(["-s", &length.to_string(), "-n", &messages.to_string()]);
    client.args(["-w", &(messages / 10).to_string(), "-f", "-v"]);
    client.args(test).arg("127.0.0.1");
    let text = host::run(client)?;
    // The server ends by itself after one test, and frees the port.
    server.end()?;
    parse(&text)
}

/// Whether a process listens on the port. A connection would already start a test.
fn listens() -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let wanted = format!(":{PORT:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let here = fields.nth(1).is_some_and(|local| local.ends_with(&wanted));
        here && fields.nth(1) == Some("0A")
    })
}

/// Parses the last line of figures.
fn parse(text: &str) -> Result<Vec<f64>> {
    let figures = |line: &str| -> Option<Vec<f64>> {
        let fields = line.split(',').map(|field| field.trim().parse().ok());
        fields.collect::<Option<Vec<f64>>>()
    };
    let found = text.lines().rev().filter_map(figures);
    let mut found = found.filter(|fields| fields.len() >= FIELDS);
    found
        .next()
        .ok_or_else(|| Error::unreadable("the figures of ucx_perftest", text))
}

fn field(fields: &[f64], at: usize) -> Result<f64> {
    let missing = || Error::unreadable("the figures of ucx_perftest", "");
    fields.get(at).copied().ok_or_else(missing)
}
