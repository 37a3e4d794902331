//! What a daemon, an older or newer program, or a broken connection may send to the page.

use serde_json::{Value, json};

use super::recordings::{empty, faulty, large};
use super::stub::{Files, Step, Stub, files};
use super::{Browser, Faults, Page, SHOWN, WIDE, show_matrix};
use crate::common::until;

fn page_files() -> Files {
    files(&Page::of(&empty(), 1).origin)
}

fn at(mut live: Value, second: u32) -> Value {
    live["at"] = json!(1_790_000_000.0 + f64::from(second));
    live
}

/// Opens a page of a daemon that sends these lines.
fn opened(browser: &mut Browser, files: &Files, answers: Vec<Vec<Step>>) -> Stub {
    let stub = Stub::start(0, files, answers);
    browser.open(&stub.origin, WIDE, false);
    stub
}

/// Replaces a value anywhere below `value`; `at` counts the values down.
fn replace(value: &mut Value, at: &mut usize, by: &Value) {
    if *at == 0 {
        *value = by.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, at, by)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, at, by)),
        _ => {}
    }
}

fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}

#[test]
fn fields_of_any_kind_and_mutated_figures_break_nothing() {
    let files = page_files();
    let good = faulty();
    let mut random = fastrand::Rng::with_seed(26);
    let others = [
        Value::Null,
        json!(-1),
        json!(1e308),
        json!("NaN"),
        json!([]),
        json!({}),
        json!([null, 1, "x"]),
        json!(true),
    ];
    let mut steps = vec![Step::of(&at(good.clone(), 0))];
    for second in 1..=150 {
        let mut live = at(good.clone(), second);
        for _ in 0..random.usize(1..6) {
            let mut place = random.usize(1..values(&live));
            replace(&mut live, &mut place, random.choice(&others).unwrap());
        }
        if !live.is_object() {
            continue;
        }
        // The version is checked by another test.
        live["version"] = json!(1);
        steps.push(Step::of(&live));
    }
    // Objects of other kinds than figures are passed over.
    steps.extend(["null", "[]", "7", "\"x\""].map(|text| Step::Line(text.to_owned())));
    let mut last = at(good, 1000);
    last["program"] = json!("9.9.9");
    last["novelty"] = json!({ "of": ["a", "newer", "daemon"] });
    for gone in [
        "remote_peers",
        "direct",
        "messages",
        "spaces",
        "cannot_read",
    ] {
        last.as_object_mut().unwrap().remove(gone);
    }
    steps.extend([Step::of(&last), Step::Stay]);
    let mut browser = Browser::start();
    let stub = opened(&mut browser, &files, vec![steps]);
    browser.until("document.querySelector('#version').textContent.includes('9.9.9')");
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 8");
    browser.until("document.querySelectorAll('#problem-list li').length === 3");
    assert_eq!(browser.faults(&stub.origin), Faults::default());
}

#[test]
fn a_newer_format_is_said_and_a_line_that_is_cut_is_read_again() {
    let files = page_files();
    let mut browser = Browser::start();
    let mut newer = empty();
    newer["version"] = json!(2);
    let stub = opened(
        &mut browser,
        &files,
        vec![vec![Step::of(&newer), Step::Stay]],
    );
    browser.until("document.querySelector('#state').textContent.includes('version 2')");
    drop(stub);
    let whole = faulty().to_string();
    let (part, _) = whole.split_at(whole.len() / 2);
    let cut = vec![
        Step::of(&at(empty(), 1)),
        Step::Bytes(format!("data: {part}").into_bytes()),
    ];
    let garbage = vec![Step::Line("{\"version\":".to_owned())];
    let good = vec![Step::of(&at(faulty(), 2)), Step::Stay];
    let stub = opened(&mut browser, &files, vec![cut, garbage, good]);
    browser.until("document.querySelectorAll('#problem-list li').length === 3");
    browser.until("document.querySelector('#state').textContent === ''");
    let faults = browser.faults(&stub.origin);
    // The browser itself tells of the connections that were cut.
    let cut = |told: &String| told.contains("net::ERR_INCOMPLETE_CHUNKED_ENCODING");
    assert!(faults.console.iter().all(cut), "{faults:?}");
    assert_eq!(faults.foreign, [""; 0]);
}

#[test]
fn a_daemon_that_starts_again_is_found_and_a_clock_that_jumps_back_begins_the_charts_anew() {
    let files = page_files();
    let mut browser = Browser::start();
    let seconds = |range: std::ops::Range<u32>| -> Vec<Step> {
        let lines = range.map(|second| Step::of(&at(faulty(), second)));
        lines.chain([Step::Stay]).collect()
    };
    let stub = opened(&mut browser, &files, vec![seconds(5000..5010)]);
    browser.until(SHOWN);
    let port = stub.port;
    drop(stub);
    browser.until("document.body.classList.contains('stale')");
    let mut again = seconds(0..3);
    let mut last = at(faulty(), 3);
    last["program"] = json!("1.2.3");
    again.insert(3, Step::of(&last));
    let _stub = Stub::start(port, &files, vec![again]);
    browser.until("!document.body.classList.contains('stale')");
    browser.until("document.querySelector('#version').textContent.includes('1.2.3')");
    browser.until("document.querySelector('#state').textContent === ''");
    // The line of the chart is within its 72 pixels: none is in the future.
    browser.until(
        "(() => { const d = document.querySelector('#vm-table tbody .chart path').getAttribute('d') ?? ''; const x = \
         [...d.matchAll(/[ML]([-0-9.]+) /g)].map((match) => Number(match[1])); return x.length > 0 && \
         x.every((value) => value >= 0 && value <= 72); })()",
    );
}

#[test]
fn a_thousand_vms_with_ten_thousand_pairs_are_shown() {
    let files = page_files();
    let mut browser = Browser::start();
    let lines: Vec<Step> = (0..3)
        .map(|second| Step::of(&at(large(1000, 10), second)))
        .chain([Step::Stay])
        .collect();
    let stub = opened(&mut browser, &files, vec![lines]);
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 1000");
    show_matrix(&mut browser);
    browser.eval("document.querySelector('#filter').focus()");
    browser.type_text("vm-0999");
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 1");
    assert_eq!(browser.faults(&stub.origin), Faults::default());
}

#[test]
fn no_page_of_another_site_shows_the_page_in_a_frame() {
    let page = Page::of(&faulty(), 20);
    let mut files = files(&page.origin);
    let frame = format!(
        "<!doctype html><title>other</title><iframe src='{}'></iframe>",
        page.origin
    );
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length";
    let other = format!("{head}: {}\r\n\r\n{frame}", frame.len());
    files.insert("/other".to_owned(), other.into_bytes());
    let stub = Stub::start(0, &files, vec![vec![Step::Stay]]);
    let mut browser = Browser::start();
    browser.open(&format!("{}/other", stub.origin), WIDE, false);
    browser.until("document.title === 'other'");
    let mut told = Vec::new();
    until("the browser's refusal", || {
        told = browser.failed_loads();
        !told.is_empty()
    });
    assert!(told[0].contains("ERR_BLOCKED_BY_RESPONSE"), "{told:?}");
}

/// A client as Cockpit's: text arrives in pieces, and a promise ends with the connection.
const COCKPIT: &str = "globalThis.cockpit = { http: () => ({ get: (path) => {
  let take = () => {};
  const all = fetch(path).then(async (answer) => {
    const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return text;
      const piece = decoder.decode(value, { stream: true });
      text += piece;
      take(piece);
    }
  });
  return { stream: (callback) => (take = callback), then: (...them) => all.then(...them) };
} }) }; globalThis.Worker = null;";

#[test]
fn cockpits_client_shows_the_same_without_a_worker() {
    let files = page_files();
    let mut browser = Browser::start();
    browser.before_each_page(COCKPIT);
    let lines: Vec<Step> = (0..3)
        .map(|second| Step::of(&at(faulty(), second)))
        .chain([Step::Stay])
        .collect();
    let stub = opened(&mut browser, &files, vec![lines]);
    browser.until("document.querySelector('#version').textContent.endsWith(':22')");
    browser.until("document.querySelectorAll('#vm-table tbody tr').length === 8");
    browser.eval("document.querySelector('#matrix').scrollIntoView()");
    browser.until("document.querySelectorAll('#pair-table tbody tr').length === 8");
    // The last interval has the details, although no other one comes.
    browser.click("#problem-list .who");
    browser.until("document.querySelector('#detail').textContent.includes('CPU 0/KVM')");
    assert_eq!(browser.faults(&stub.origin), Faults::default());
}

#[test]
fn a_page_that_is_busy_shows_the_newest_interval_and_has_no_queue() {
    let files = page_files();
    let mut browser = Browser::start();
    browser.before_each_page(
        "new MutationObserver(() => { const text = document.querySelector('#version')?.textContent; \
         if (text && window.told?.at(-1) !== text) (window.told ??= []).push(text); }) \
         .observe(document, { subtree: true, childList: true, characterData: true });",
    );
    let mut last = at(faulty(), 100);
    last["program"] = json!("9.9.9");
    let lines: Vec<Step> = (0..100)
        .map(|second| Step::of(&at(faulty(), second)))
        .chain([Step::of(&last), Step::Stay])
        .collect();
    let stub = opened(&mut browser, &files, vec![lines]);
    browser.until(SHOWN);
    // The main thread stands still while most of the intervals arrive.
    browser.eval(
        "(() => { const end = performance.now() + 3000; while (performance.now() < end); })()",
    );
    browser.until("document.querySelector('#version').textContent.includes('9.9.9')");
    let shown = browser.eval("window.told.length").as_u64().unwrap();
    assert!(shown < 60, "{shown} of 101 intervals were shown");
    assert_eq!(browser.faults(&stub.origin), Faults::default());
}
