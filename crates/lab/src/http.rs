//! An HTTP client for measuring servers: one request for each connection, as in httperf.
//!
//! With a rate the client is an open loop: request number N is due at N / rate regardless of the
//! others, and its times count from the time at which it was due, not from the time at which a worker sent it. The
//! delay of every request that waits for a stalled server is counted. Without a rate, each worker
//! sends the next request as soon as the last was answered, which measures the maximum rate of the server.
//!
//! Work that runs beside the client may take longer than the requested time. The client then continues, so that the
//! load lasts as long as the work, and reports only the requested time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use report::stats::quantile;

use report::inference::mean;

/// A load of requests.
#[derive(Clone, Debug)]
pub struct Load {
    /// Address of the server.
    pub server: SocketAddr,
    /// Path of the file.
    pub path: String,
    /// Requests a second; `None` for as many as the server answers.
    pub rate: Option<f64>,
    /// Seconds of load before the measurement.
    pub warm_up: f64,
    /// Seconds of the measurement.
    pub seconds: f64,
    /// Maximum number of requests under way.
    pub workers: usize,
}

/// Results of a load. A response within the measurement's time counts as served, whenever its request was due, because
/// a late server serves nevertheless. Times are those of the requests that were due in the measurement's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Responses a second.
    pub req_s: f64,
    /// Bytes of bodies received, kB a second.
    pub kb_s: f64,
    /// Responses to requests due in this time, including late ones.
    pub answers: u64,
    /// Requests due in this time that failed or timed out, or were not sent within 5 s.
    pub errors: u64,
    /// Reason of the first failure.
    pub error: Option<String>,
    /// Mean time from when a request was due to the first byte of its response, ms.
    pub reply_ms: f64,
    /// Median of the same time.
    pub reply_p50_ms: f64,
    /// 99th percentile of the same time.
    pub reply_p99_ms: f64,
    /// 99.9th percentile of the same time. With fewer than a thousand responses this is about the slowest.
    pub reply_p999_ms: f64,
    /// Time from the first byte of the response to the last, mean, ms.
    pub transfer_ms: f64,
    /// CPU-seconds that this client used in each second; near one, the client itself was the bottleneck.
    pub client_cpu: f64,
    /// Responses in each [`SLOT`].
    pub timeline: Vec<u32>,
}

/// An interval of the timeline; it is short, because a server's dip may be short.
pub const SLOT: Duration = Duration::from_millis(10);

/// Longest wait for a server.
const LIMIT: Duration = Duration::from_secs(5);

struct Answer {
    /// Times at which the request was due and the response arrived, in seconds from the start.
    due: f64,
    done: f64,
    reply: f64,
    transfer: f64,
    bytes: usize,
}

/// Runs a load. Blocks for `warm_up` and `seconds`, then as long as `wanted` returns true, and at most 5 s more for
/// late responses.
#[must_use]
pub fn run(load: &Load, wanted: impl Fn() -> bool + Sync) -> Report {
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let before = own_cpu();
    let found: Vec<(Vec<Answer>, Vec<String>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..load.workers.max(1))
            .map(|_| scope.spawn(|| worker(load, &next, start, &wanted)))
            .collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .collect()
    });
    let used = own_cpu().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64();
    let errors: Vec<String> = found
        .iter()
        .flat_map(|(_, errors)| errors.clone())
        .collect();
    let answers: Vec<Answer> = found.into_iter().flat_map(|(answers, _)| answers).collect();
    report(load, &answers, &errors, used)
}

/// Returns the CPU time of this process, which is the client, without its children.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn worker(
    load: &Load,
    next: &AtomicU64,
    start: Instant,
    wanted: &impl Fn() -> bool,
) -> (Vec<Answer>, Vec<String>) {
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    let total = load.warm_up + load.seconds;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "far fewer requests than 2^52")]
        let due = load
            .rate
            .map_or(start.elapsed().as_secs_f64(), |rate| number as f64 / rate);
        if due >= total && !wanted() {
            return (answers, errors);
        }
        let early = due - start.elapsed().as_secs_f64();
        if early > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(early));
        }
        let answer = match start.elapsed().as_secs_f64() > due.max(total) + LIMIT.as_secs_f64() {
            true => Err(std::io::ErrorKind::WouldBlock.into()),
            false => send_request(load, start, due),
        };
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) if (load.warm_up..total).contains(&due) => errors.push(reason(&error)),
            Err(_) => {}
        }
    }
}

/// Returns the reason why a request failed. It is in words also for a read that timed out.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => format!("no answer within {} s", LIMIT.as_secs()),
        _ => error.to_string(),
    }
}

fn send_request(load: &Load, start: Instant, due: f64) -> std::io::Result<Answer> {
    let mut socket = TcpStream::connect_timeout(&load.server, LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_nodelay(true)?;
    socket.write_all(format!("GET {} HTTP/1.0\r\nHost: lab\r\n\r\n", load.path).as_bytes())?;
    let mut chunk = vec![0; 65536];
    let mut head = Vec::new();
    let (mut first, mut bytes) = (None, 0);
    loop {
        let got = socket.read(&mut chunk)?;
        first.get_or_insert_with(|| start.elapsed().as_secs_f64());
        if got == 0 {
            break;
        }
        if head.len() < 12 {
            head.extend(chunk.iter().take(got.min(12)));
        }
        bytes += got;
    }
    if head.get(9..12) != Some(b"200") {
        let said = String::from_utf8_lossy(&head).into_owned();
        return Err(std::io::Error::other(format!("answered `{said}`")));
    }
    let (first, done) = (first.unwrap_or(due), start.elapsed().as_secs_f64());
    Ok(Answer {
        due,
        done,
        reply: first - due,
        transfer: done - first,
        bytes,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts of some seconds")]
fn report(load: &Load, answers: &[Answer], errors: &[String], client_cpu: f64) -> Report {
    let within = load.warm_up..load.warm_up + load.seconds;
    let due = || answers.iter().filter(|answer| within.contains(&answer.due));
    let replies: Vec<f64> = due().map(|answer| answer.reply * 1e3).collect();
    let transfers: Vec<f64> = due().map(|answer| answer.transfer * 1e3).collect();
    let served = answers
        .iter()
        .filter(|answer| within.contains(&answer.done));
    let served: Vec<&Answer> = served.collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few thousand slots"
    )]
    let slots = (load.seconds / SLOT.as_secs_f64()).round().max(0.0) as usize;
    let mut timeline = vec![0; slots];
    for answer in &served {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a slot's number"
        )]
        let slot = ((answer.done - load.warm_up) / SLOT.as_secs_f64()) as usize;
        if let Some(count) = timeline.get_mut(slot) {
            *count += 1;
        }
    }
    let known = |x: f64| if x.is_finite() { x } else { 0.0 };
    Report {
        req_s: served.len() as f64 / load.seconds,
        kb_s: served.iter().map(|answer| answer.bytes as f64).sum::<f64>() / 1e3 / load.seconds,
        answers: replies.len() as u64,
        errors: errors.len() as u64,
        error: errors.first().cloned(),
        reply_ms: known(mean(&replies)),
        reply_p50_ms: known(quantile(&replies, 0.5)),
        reply_p99_ms: known(quantile(&replies, 0.99)),
        reply_p999_ms: known(quantile(&replies, 0.999)),
        transfer_ms: known(mean(&transfers)),
        client_cpu,
        timeline,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Starts a server that takes `pause` for each of `count` requests, one after the other.
    fn server(pause: Duration, count: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming().take(count) {
                let mut socket = socket.unwrap();
                let _request = socket.read(&mut [0; 200]);
                std::thread::sleep(pause);
                let _gone = socket.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
            }
        });
        address
    }

    fn load(server: SocketAddr, rate: Option<f64>) -> Load {
        Load {
            server,
            path: "/1".into(),
            rate,
            warm_up: 0.0,
            seconds: 0.5,
            workers: 4,
        }
    }

    #[test]
    fn waiting_counts_from_when_a_request_was_due() {
        // 20 requests are due within 0.5 s, and the server takes 50 ms for each, one at a time. It answers the last
        // after a second, which is half a second late.
        let load = load(server(Duration::from_millis(50), 100), Some(40.0));
        let report = run(&load, || false);
        assert!(report.reply_p99_ms > 300.0, "{report:?}");
        assert!(report.req_s < 30.0 && report.errors == 0);
    }

    #[test]
    fn a_server_that_is_late_serves_all_the_same() {
        let load = Load {
            warm_up: 1.0,
            seconds: 1.0,
            ..load("127.0.0.1:80".parse().unwrap(), Some(100.0))
        };
        // Three requests are due each second, and the server answers two a second. Therefore each response is later
        // than the one before.
        let answer = |number: u32| Answer {
            due: f64::from(number) / 3.0,
            done: f64::from(number + 1) / 2.0,
            reply: f64::from(number + 1) / 2.0 - f64::from(number) / 3.0,
            transfer: 0.0,
            bytes: 1000,
        };
        let answers: Vec<Answer> = (0..6).map(answer).collect();
        let report = report(&load, &answers, &[], 0.0);
        assert!((report.req_s - 2.0).abs() < 1e-9 && (report.kb_s - 2.0).abs() < 1e-9);
        // The fourth to the sixth request are due in the measured second, which is the second one.
        assert_eq!((report.answers, report.timeline.iter().sum()), (3, 2));
        assert!((report.reply_p50_ms - answers[4].reply * 1e3).abs() < 1e-6);
    }

    #[test]
    fn it_goes_on_while_it_is_wanted_and_reports_the_time_asked_for() {
        let nobody = "127.0.0.1:1".parse().unwrap();
        let load = Load {
            seconds: 0.0,
            ..load(nobody, None)
        };
        let looks = AtomicU64::new(0);
        let report = run(&load, || looks.fetch_add(1, Ordering::Relaxed) < 8);
        // The function returned true for eight more requests, which failed, and false once to each of the four
        // workers.
        assert_eq!(looks.into_inner(), 12);
        assert_eq!((report.answers, report.errors), (0, 0), "{report:?}");
    }

    #[test]
    fn an_answer_that_is_no_success_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let _request = socket.read(&mut [0; 200]);
                let _gone = socket.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
            }
        });
        let report = run(&load(address, Some(20.0)), || false);
        assert!(report.errors > 5 && report.req_s == 0.0, "{report:?}");
    }
}
