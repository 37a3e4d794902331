//! The page by TCP, and recordings, as a user sees them.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "page/recordings.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod recordings;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Daemon, page, until, vicinity};
use recordings::{demo, faulty, hostile, recording};
use serde_json::Value;

/// Makes a certificate for `localhost`, and a token.
fn files(folder: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    openssl.arg("-keyout").arg(folder.join("key.pem"));
    openssl.arg("-out").arg(folder.join("cert.pem"));
    assert!(openssl.stderr(Stdio::null()).status().unwrap().success());
    fs::write(folder.join("token"), "secret-of-the-page\n").unwrap();
}

fn config(folder: &Path, port: u16) -> String {
    let at = folder.display();
    format!(
        "[web]\nlisten = \"127.0.0.1:{port}\"\ntoken-file = \"{at}/token\"\ncertificate = \"{at}/cert.pem\"\n\
         key = \"{at}/key.pem\"\nhost-name = \"host.example\"\n[[network]]\nname = \"lan\"\n[[network.port]]\nvm = \"web\"\n"
    )
}

/// Returns the status code and the body of a request with these options of curl.
fn curl(folder: &Path, options: &[&str]) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--max-time",
        "20",
        "--write-out",
        "\n%{http_code}",
        "--cacert",
    ]);
    let output = curl
        .arg(folder.join("cert.pem"))
        .args(options)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.to_owned(), body.to_owned())
}

#[test]
fn by_tcp_there_is_tls_and_no_figure_without_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    files(at);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let daemon = Daemon::start(at, Some(&config(at, port)));
    let url = |path: &str| format!("https://localhost:{port}{path}");
    let token = "authorization: Bearer secret-of-the-page";
    let (code, body) = curl(at, &[&url("/")]);
    assert!(
        code == "200" && body.starts_with("<!doctype html>"),
        "{code}"
    );
    for path in ["/v1/ports", "/v1/live", "/metrics", "/v1/history"] {
        let (code, body) = curl(at, &[&url(path)]);
        assert!(
            code == "401" && body.contains("no valid token"),
            "{path} {code} {body}"
        );
        let wrong = ["-H", "authorization: Bearer wrong", &url(path)];
        assert_eq!(curl(at, &wrong).0, "401");
    }
    let (code, body) = curl(at, &["-H", token, &url("/v1/ports")]);
    assert!(code == "200" && body.contains("\"web\""), "{body}");
    let (_, body) = curl(at, &["-H", token, &url("/metrics")]);
    for name in [
        "vicinity_port_stuck_seconds",
        "vicinity_vm_wait_seconds_total",
        "vicinity_worker_cpu_seconds_total{",
    ] {
        assert!(body.contains(name), "{name}");
    }
    let families: Vec<_> = body
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let mut once = families.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), families.len(), "a family is there twice");
    for (expected, options) in [
        (
            "403",
            [
                "-H",
                token,
                "-H",
                "host: attacker.example",
                &url("/v1/ports"),
            ],
        ),
        (
            "200",
            [
                "-H",
                token,
                "-H",
                "host: host.example:8443",
                &url("/v1/ports"),
            ],
        ),
        ("404", ["-H", token, "-X", "POST", &url("/v1/reload")]),
        ("404", ["-H", token, "-H", "x: y", &url("/v1/config")]),
    ] {
        assert_eq!(curl(at, &options).0, expected, "{options:?}");
    }
    // No TLS, no answer.
    let plain = format!("http://localhost:{port}/");
    assert_eq!(curl(at, &[&plain]).0, "000");
    drop(daemon);
}

#[test]
fn what_the_page_needs_and_does_not_get_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    files(at);
    let serve = |text: &str| -> Output {
        let file = at.join("refused.toml");
        fs::write(&file, text).unwrap();
        let mut timeout = Command::new("timeout");
        timeout.arg("20").arg(env!("CARGO_BIN_EXE_vicinity"));
        timeout
            .args(["serve", "--config"])
            .arg(file)
            .arg("--runtime-dir");
        timeout.arg(at.join("run")).output().unwrap()
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = config(at, port);
    for (what, text) in [
        ("cannot listen on", text.clone()),
        (
            "cannot read a token",
            text.replace("/token\"", "/nothing\""),
        ),
        (
            "cannot read a private key",
            text.replace("/key.pem\"", "/cert.pem\""),
        ),
    ] {
        let output = serve(&text);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains(what),
            "{what}: {said}"
        );
        page::assert_quoted(&said);
    }
}

#[test]
fn a_recording_is_shown_with_its_problems_and_is_recorded_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.ndjson");
    fs::write(&file, recording(&faulty(), 3)).unwrap();
    let top = |options: &[&str]| {
        let mut command = vicinity();
        command.args(["top", "--replay"]).arg(&file).args(options);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, shown, said) = top(&["--once"]);
    assert_eq!(code, Some(0), "{said}");
    for text in [
        "db has taken no frame",
        "vicinity qemu-args --network lan mail",
        "proxy",
    ] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    let (_, shown, _) = top(&["--json"]);
    assert_eq!(shown.lines().count(), 3);
    // This host is recorded as it is shown.
    let again = folder.path().join("again.ndjson");
    let mut command = vicinity();
    command.args(["top", "--once", "--runtime-dir", "/nonexistent", "--record"]);
    assert!(
        command
            .arg(&again)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let recorded: Value = serde_json::from_str(&fs::read_to_string(&again).unwrap()).unwrap();
    assert_eq!(recorded["version"], 1);
    fs::copy(&again, &file).unwrap();
    assert_eq!(top(&["--once"]).0, Some(0));
    // Names cannot control the terminal, and what is no recording is refused.
    fs::write(&file, recording(&hostile(), 1)).unwrap();
    assert!(!top(&["--once"]).1.contains('\u{202e}'));
    for (text, part) in [
        ("", "no interval"),
        ("[1]\n", "line 1"),
        ("{\"version\":99}\n", "version 99"),
    ] {
        fs::write(&file, text).unwrap();
        let (code, _, said) = top(&["--once"]);
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
}

#[test]
fn the_recording_of_the_demos_traffic_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.ndjson");
    fs::write(&file, demo()).unwrap();
    let seconds = demo().lines().count();
    assert!(seconds >= 60, "{seconds}");
    let mut command = vicinity();
    command.args(["top", "--json", "--replay"]).arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let reports: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(reports.len(), seconds);
    let sent = |report: &Value| {
        let pairs = report["pairs"].as_array().unwrap().iter();
        let pair = pairs.filter(|pair| pair["from"] == "vm1" && pair["to"] == "vm2");
        pair.map(|pair| pair["bytes"].as_f64().unwrap())
            .sum::<f64>()
    };
    assert!(
        reports.iter().any(|report| sent(report) > 1e6),
        "the stream over the switch"
    );
    let mut command = vicinity();
    command.args(["top", "--once", "--replay"]).arg(&file);
    let output = command.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for text in ["vm1", "vm2", "└ backend"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
}

#[test]
fn without_a_listener_the_daemon_does_not_wake_up_for_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(
        folder.path(),
        Some("[[network]]\nname = \"lan\"\naccept = true\n"),
    );
    let switches = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--max-time",
        "2",
        "http://localhost/v1/live",
        "--unix-socket",
    ]);
    curl.arg(daemon.path("view.sock")).stdout(Stdio::null());
    // curl ends it after two seconds.
    assert_eq!(curl.status().unwrap().code(), Some(28));
    // A sampler would wake the daemon's first thread several times a second. It ends with the second of its listener.
    until("an idle second and a half", || {
        let before = switches();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        switches() - before <= 1
    });
}
