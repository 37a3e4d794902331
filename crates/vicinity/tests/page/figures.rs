//! The page's figures: size, time to the first figures, the main thread's time, and what listeners cost the daemon.
//!
//! `cargo test --release --package vicinity --test page figures -- --ignored --nocapture --test-threads 1`

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::recordings::large;
use super::{Browser, LARGEST_MATRIX, Page, SHOWN, WIDE, show_matrix};
use crate::common::{Daemon, until, vicinity};

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the milliseconds of CPU time that the main thread uses in a second.
fn main_thread(browser: &mut Browser) -> f64 {
    let cost = |_| {
        let (before, since) = (browser.main_thread_seconds(), Instant::now());
        sleep(Duration::from_secs(10));
        (browser.main_thread_seconds() - before) / since.elapsed().as_secs_f64() * 1e3
    };
    median((0..5).map(cost).collect())
}

#[test]
#[ignore = "prints figures; three minutes"]
fn figures_of_the_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/web/page");
    let mut sum = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let packed = Command::new("gzip").arg("-9c").arg(file).output().unwrap();
        sum += packed.stdout.len();
    }
    println!("page: {sum} B with gzip -9, target 60,000");

    let mut browser = Browser::start();
    // Notes when the first figures are in the document, since the navigation.
    browser.before_each_page(
        "new MutationObserver((_, observer) => { const version = document.querySelector('#version'); if \
         (version?.textContent.includes('figures of')) { window.firstFigures = performance.now(); \
         observer.disconnect(); } }).observe(document, { subtree: true, childList: true, characterData: true });",
    );
    let page = Page::of(&large(100, 10), 600);
    let (mut times, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        browser.open(&page.url, WIDE, false);
        browser.until("window.firstFigures > 0");
        times.push(browser.eval("window.firstFigures").as_f64().unwrap());
        busy.push(browser.main_thread_seconds() * 1e3);
    }
    println!(
        "first figures of 100 VMs: {:.0} ms after the navigation, target 300; the main thread's CPU time {:.0} ms",
        median(times),
        median(busy)
    );

    println!(
        "main thread, 100 VMs and 1,000 pairs: {:.1} ms a second, target 8",
        main_thread(&mut browser)
    );

    show_matrix(&mut browser);
    sleep(Duration::from_secs(2));
    println!(
        "the same while the matrix is on the screen: {:.1} ms a second",
        main_thread(&mut browser)
    );

    let page = Page::of(&large(512, 20), 600);
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    show_matrix(&mut browser);
    browser.eval(LARGEST_MATRIX);
    let draws = browser.eval(
        "import('/matrix.js').then((matrix) => Array.from({ length: 9 }, () => matrix.draw()).sort((a, b) => a - b)[4])",
    );
    println!("512 x 512 with 10,240 pairs: {draws} ms, target 30");
}

/// QEMUs that do nothing, which end with this value.
struct Machines(Vec<Child>);

impl Machines {
    fn start(count: usize) -> Self {
        let machine = |number: usize| {
            let mut qemu = Command::new("qemu-system-x86_64");
            qemu.args(["-S", "-display", "none", "-nodefaults", "-m", "32", "-name"]);
            qemu.arg(format!("vm{number}")).stdin(Stdio::null());
            qemu.spawn().unwrap()
        };
        Self((0..count).map(machine).collect())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.0 {
            drop(machine.kill());
            drop(machine.wait());
        }
    }
}

/// Listeners of a daemon, which end with this value.
struct Listeners(Vec<Child>);

impl Listeners {
    fn start(daemon: &Daemon, count: usize) -> Self {
        let listener = |_| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "http://localhost/v1/live", "--unix-socket"]);
            curl.arg(daemon.path("view.sock")).stdout(Stdio::null());
            curl.spawn().unwrap()
        };
        Self((0..count).map(listener).collect())
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &mut self.0 {
            drop(listener.kill());
            drop(listener.wait());
        }
    }
}

/// Seconds of CPU time that a process and its children that run have used.
fn cpu(pid: u32) -> f64 {
    let of = |pid: &str| -> f64 {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = text
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks = |place: usize| fields.get(place).map_or(0.0, |it| it.parse().unwrap());
        (ticks(11) + ticks(12)) / 100.0
    };
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children: f64 = children.split_whitespace().map(of).sum();
    of(&pid.to_string()) + children
}

/// Returns the part of a CPU, in percent, that processes use.
fn use_of(pids: &[u32]) -> f64 {
    let all = || pids.iter().map(|pid| cpu(*pid)).sum::<f64>();
    let (before, since) = (all(), Instant::now());
    sleep(Duration::from_secs(10));
    (all() - before) / since.elapsed().as_secs_f64() * 100.0
}

#[test]
#[ignore = "prints figures; four minutes"]
fn figures_of_the_daemon() {
    const VMS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let ports: String = (0..VMS)
        .map(|number| format!("[[network.port]]\nvm = \"vm{number}\"\n"))
        .collect();
    let daemon = Daemon::start(
        folder.path(),
        Some(&format!("[[network]]\nname = \"lan\"\n{ports}")),
    );
    let _machines = Machines::start(VMS);
    sleep(Duration::from_secs(5));
    let pid = daemon.child.id();
    let mut figures: [Vec<f64>; 4] = Default::default();
    for _ in 0..5 {
        figures[0].push(use_of(&[pid]));
        let mut command = vicinity();
        command.args(["top", "--json", "--runtime-dir"]);
        let top = command.arg(daemon.path("")).stdout(Stdio::null()).spawn();
        let mut top = top.unwrap();
        figures[1].push(use_of(&[pid, top.id()]));
        drop((top.kill(), top.wait()));
        for (place, count) in [(2, 1), (3, 16)] {
            let listeners = Listeners::start(&daemon, count);
            sleep(Duration::from_secs(1));
            figures[place].push(use_of(&[pid]));
            drop(listeners);
            sleep(Duration::from_secs(2));
        }
    }
    let [none, top, one, sixteen] = figures.map(median);
    println!(
        "{VMS} VMs, percent of a CPU, medians of 5: daemon alone {none:.2}; daemon and `vicinity top` {top:.2}"
    );
    println!(
        "daemon with 1 listener {one:.2} (target {:.2}), with 16 {sixteen:.2} (target {:.2})",
        top + 0.2,
        top + 1.0
    );
    let switches = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    until("the sampler has ended", || {
        let before = switches();
        sleep(Duration::from_millis(1500));
        switches() - before <= 1
    });
    let before = switches();
    sleep(Duration::from_secs(10));
    println!(
        "without a listener: {} wake-ups of the daemon's first thread in 10 s",
        switches() - before
    );
}
