//! The page, in a headless Chromium, with recordings instead of VMs.
//!
//! `VICINITY_SCREENSHOTS=FOLDER` keeps a picture of each state.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "page/browser.rs"]
mod browser;
mod common;
#[path = "page/figures.rs"]
mod figures;
#[path = "page/heap.rs"]
mod heap;
#[path = "page/input.rs"]
mod input;
#[path = "page/pictures.rs"]
mod pictures;
#[path = "page/planted.rs"]
mod planted;
#[path = "page/recordings.rs"]
mod recordings;
#[path = "page/stub.rs"]
mod stub;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use browser::{Browser, Faults};
use common::vicinity;
use recordings::{empty, faulty, hostile, large, recording};
use serde_json::Value;

/// `vicinity web` with a recording.
struct Page {
    child: Child,
    origin: String,
    url: String,
    #[allow(dead_code, reason = "it is removed with this value")]
    folder: Option<tempfile::TempDir>,
}

impl Page {
    fn of(live: &Value, seconds: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording.ndjson");
        std::fs::write(&file, recording(live, seconds)).unwrap();
        let mut page = Self::replay(&file);
        page.folder = Some(folder);
        page
    }

    fn replay(file: &Path) -> Self {
        let mut command = vicinity();
        command.args(["web", "--replay"]).arg(file);
        Self::by(command)
    }

    /// Shows the daemon with this runtime folder.
    fn of_daemon(runtime_dir: &Path) -> Self {
        let mut command = vicinity();
        command.args(["web", "--runtime-dir"]).arg(runtime_dir);
        Self::by(command)
    }

    fn by(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        let url = url.trim().to_owned();
        let origin = url.split("/#").next().unwrap().to_owned();
        Self {
            child,
            origin,
            url,
            folder: None,
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Most milliseconds of the main thread's CPU time in a second. The target is 8 on an idle host; here others share the
/// CPUs and their caches, and a part is the question of this test whether the second has come.
const LARGE_HOST: f64 = 60.0;

const WIDE: (u32, u32) = (1280, 900);

/// The page is there, with figures.
const SHOWN: &str = "document.querySelector('#version').textContent.includes('figures of')";

/// Chooses the largest matrix. Its pairs come when it is on the screen.
const LARGEST_MATRIX: &str =
    "(() => { const size = document.querySelector('#matrix-size'); size.value = '512';
  size.dispatchEvent(new Event('change')); })()";

/// Scrolls to the matrix, and waits for the busiest of at least 40 pairs.
fn show_matrix(browser: &mut Browser) {
    browser.eval("document.querySelector('#matrix').scrollIntoView()");
    browser.until("document.querySelectorAll('#pair-table tbody tr').length === 40");
}

/// Whether a text has the contrast of WCAG 2.2, 1.4.3, for each visible element with a text of its own.
const LOW_CONTRAST: &str = "(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.offsetParent === null || element.matches(':disabled, option')) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.push(`${element.outerHTML.slice(0, 80)}: ${contrast.toFixed(2)}`);
  }
  return low;
})()";

/// Elements that can have the focus and have no name for a screen reader.
const NAMELESS: &str = "[...document.querySelectorAll('button, input, select, canvas, dialog, table')]
  .filter((element) => element.offsetParent !== null)
  .filter((element) => !(element.getAttribute('aria-label') || element.getAttribute('aria-labelledby')
    || element.labels?.length || element.textContent.trim()))
  .map((element) => element.outerHTML.slice(0, 80))";

#[test]
fn each_of_three_faults_is_at_first_sight_and_everything_works_by_keyboard() {
    let page = Page::of(&faulty(), 40);
    let mut browser = Browser::start();
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    // Since the navigation: less than 300 ms on an idle host; the sampler of a recording waits 200 ms of that.
    let first = browser.eval("performance.now()");
    eprintln!("figures are shown after less than {first} ms");
    for vm in ["mail", "db", "cache"] {
        let bottom = browser.eval(&format!(
            "[...document.querySelectorAll('#problem-list .name')].find(e => e.textContent === '{vm}').getBoundingClientRect().bottom"
        ));
        assert!(bottom.as_f64().unwrap() < 600.0, "{vm} is at {bottom}");
    }
    browser
        .until("document.querySelector('#remote-table').textContent.includes('52:54:00:aa:00:01')");
    browser.picture("faulty");
    assert_eq!(browser.eval(LOW_CONTRAST), serde_json::json!([]));
    assert_eq!(browser.eval(NAMELESS), serde_json::json!([]));

    // A click opens a VM's detail, and Escape closes it.
    browser.click("#problem-list .who");
    browser.until("document.querySelector('#detail').open");
    browser.until("document.querySelector('#detail').textContent.includes('receiver full')");
    browser.until("document.querySelector('#detail').textContent.includes('CPU 0/KVM')");
    browser.picture("detail");
    browser.press("Escape");
    browser.until("!document.querySelector('#detail').open");

    // The matrix by keys: the cell is said, and Enter opens the sender.
    browser.eval("document.querySelector('#matrix-canvas').focus()");
    browser.press("ArrowDown");
    browser.until("document.querySelector('#matrix-cell').textContent.includes(' to ')");
    let mut told = Vec::new();
    for key in [
        "ArrowRight",
        "ArrowDown",
        "ArrowRight",
        "ArrowLeft",
        "ArrowUp",
    ] {
        browser.press(key);
        told.push(browser.eval("document.querySelector('#matrix-cell').textContent"));
    }
    told.dedup();
    assert!(told.len() >= 4, "{told:?}");
    browser.picture("matrix");
    browser.press("Enter");
    browser.until("document.querySelector('#detail').open");
    browser.click("#detail-close");
    browser.until("!document.querySelector('#detail').open");

    // Sorting and filtering.
    browser.click("#vm-table thead th:first-child button");
    browser.until("document.querySelector('#vm-table tbody .name').textContent === 'build'");
    browser.eval("document.querySelector('#filter').focus()");
    browser.type_text("PROX");
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 1");
    browser.until("document.querySelector('#vm-count').textContent === '1 of 8'");

    // Every action is reached by Tab.
    let reachable = browser.eval(
        "[...document.querySelectorAll('button, input, select, canvas[tabindex]')].every(e => e.tabIndex === 0)",
    );
    assert_eq!(reachable, true);
    assert_eq!(browser.faults(&page.origin), Faults::default());
}

#[test]
fn hostile_names_are_text() {
    let page = Page::of(&hostile(), 20);
    let mut browser = Browser::start();
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 7");
    browser.picture("hostile");
    browser.click("#vm-table tbody .who");
    browser.until("document.querySelector('#detail').open");
    browser.until("document.querySelector('#detail').textContent.includes('Port on lan')");
    assert_eq!(
        browser.eval("document.querySelectorAll('img, script:not([src])').length"),
        0
    );
    assert_eq!(browser.eval("document.title"), "(7) Vicinity");
    let wide = browser.eval("document.scrollingElement.scrollWidth <= innerWidth");
    assert_eq!(wide, true, "a long name does not widen the page");
    assert_eq!(browser.faults(&page.origin), Faults::default());
}

#[test]
fn every_state_fits_dark_and_narrow_screens() {
    let mut browser = Browser::start();
    for (name, live) in [("empty", empty()), ("busy", faulty())] {
        let page = Page::of(&live, 20);
        for (screen, size, dark) in [
            ("dark", WIDE, true),
            ("narrow", (360, 740), false),
            ("zoomed", (320, 225), true),
        ] {
            browser.open(&page.url, size, dark);
            browser.until(SHOWN);
            browser.picture(&format!("{name}-{screen}"));
            let fits = browser.eval("document.scrollingElement.scrollWidth <= innerWidth");
            assert_eq!(fits, true, "{name} {screen}");
            assert_eq!(
                browser.eval(LOW_CONTRAST),
                serde_json::json!([]),
                "{name} {screen}"
            );
            assert_eq!(
                browser.faults(&page.origin),
                Faults::default(),
                "{name} {screen}"
            );
        }
    }
    assert_eq!(
        browser.eval("document.querySelector('#no-problems').hidden"),
        true
    );
}

#[test]
fn a_large_host_costs_little_and_a_large_matrix_is_drawn_at_once() {
    let mut browser = Browser::start();
    let page = Page::of(&large(100, 10), 20);
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    let at = |second: u32| {
        format!("document.querySelector('#version').textContent.endsWith(':{second}')")
    };
    browser.until(&at(22));
    let before = browser.main_thread_seconds();
    browser.until(&at(26));
    let cost = (browser.main_thread_seconds() - before) / 4.0 * 1e3;
    eprintln!("100 VMs, 1,000 pairs: {cost:.1} ms of the main thread a second");
    browser.picture("large");
    assert!(cost <= LARGE_HOST, "{cost} ms");
    let page = Page::of(&large(512, 20), 20);
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    show_matrix(&mut browser);
    browser.eval(LARGEST_MATRIX);
    let cost = browser.eval(
        "import('/matrix.js').then((matrix) => Math.min(...Array.from({ length: 5 }, () => matrix.draw())))",
    );
    eprintln!("512 x 512 with 10,240 pairs: {cost} ms");
    browser.picture("matrix-512");
    // The target is 30 ms on an idle host.
    assert!(cost.as_f64().unwrap() <= 90.0, "{cost} ms");
    assert_eq!(browser.faults(&page.origin), Faults::default());
}

#[test]
fn a_connection_that_ends_is_said_and_found_again() {
    let mut page = Page::of(&faulty(), 20);
    let mut browser = Browser::start();
    browser.open(&page.url, WIDE, false);
    browser.until(SHOWN);
    page.child.kill().unwrap();
    browser.until(
        "document.querySelector('#state').textContent.startsWith('Connection lost. Last figures')",
    );
    browser.picture("lost");
}

#[test]
fn without_the_token_there_is_a_form_and_no_figure() {
    let page = Page::of(&faulty(), 20);
    let mut browser = Browser::start();
    browser.open(&page.origin, WIDE, false);
    browser.until("!document.querySelector('#token-form').hidden");
    assert!(
        !browser
            .eval("document.body.innerText")
            .as_str()
            .unwrap()
            .contains("mail")
    );
    browser.picture("token");
    let token = page.url.split('#').nth(1).unwrap().to_owned();
    browser.eval("document.querySelector('#token').focus()");
    browser.type_text(&token);
    browser.press("Enter");
    browser.until(SHOWN);
}
