//! wrk, which fetches a file repeatedly on persistent connections.

use std::path::Path;

use super::report::Figures;
use super::server::Server;
use crate::cpus::GENERATOR_CPU;
use crate::process::first_on;
use crate::threads::Totals;
use vm_harness::error::{Error, Result};
use vm_harness::host;

/// The program.
pub(super) const PROGRAM: &str = "/usr/bin/wrk";

/// Connections: enough that the server always has a request.
const CONNECTIONS: &str = "16";

/// Seconds of a measurement.
const SECONDS: u32 = 2;

/// Fetches the file of this length for [`SECONDS`].
pub(super) fn fetch(server: &Server, length: u32, folder: &Path) -> Result<Figures> {
    let mut command = first_on(GENERATOR_CPU, folder, PROGRAM);
    command.args(["--threads", "1", "--connections", CONNECTIONS]);
    command.args(["--duration", &format!("{SECONDS}s"), "--timeout", "10s"]);
    command.arg(format!("http://{}/{length}", server.at));
    let before = Totals::of(server.id())?;
    let text = host::run(command)?;
    let spent = Totals::of(server.id())?.since(&before).ran.as_secs_f64();
    let rate = parse(&text).ok_or_else(|| {
        Error::unreadable(&format!("the figures of wrk at {}", server.kind), &text)
    })?;
    let bytes_per_s = rate * f64::from(length);
    Ok(Figures {
        requests_per_s: rate,
        bytes_per_s,
        cpu_s_per_gb: spent / (bytes_per_s * f64::from(SECONDS) / 1e9),
        cpu_share: spent / f64::from(SECONDS),
    })
}

/// Requests a second, if each was answered by the file.
fn parse(text: &str) -> Option<f64> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let (_, rate) = text.split_once("Requests/sec:")?;
    let rate: f64 = rate.split_whitespace().next()?.parse().ok()?;
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "  12345 requests in 2.00s, 48.31MB read
Requests/sec:   6172.34
Transfer/sec:     24.15MB
";

    #[test]
    fn answers_that_are_no_file_do_not_count() {
        assert_eq!(parse(OUTPUT), Some(6172.34));
        assert_eq!(
            parse(&format!("  Non-2xx or 3xx responses: 1\n{OUTPUT}")),
            None
        );
        let errors = "  Socket errors: connect 0, read 3, write 0, timeout 0\n";
        assert_eq!(parse(&format!("{errors}{OUTPUT}")), None);
        assert_eq!(parse("Requests/sec:      0.00\n"), None);
    }
}
