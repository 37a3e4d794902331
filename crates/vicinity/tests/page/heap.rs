//! The heap of a page that is open for long.

use std::thread::sleep;
use std::time::Duration;

use super::recordings::{empty, large};
use super::stub::{Step, Stub, files};
use super::{Browser, Faults, Page, SHOWN, WIDE};

const MEGABYTE: f64 = 1e6;

/// `VICINITY_SOAK_SECONDS` sets the duration; without it, it is an hour.
#[test]
#[ignore = "an hour"]
fn the_heap_is_flat_within_10_mb_for_long() {
    const SAMPLES: u32 = 20;
    let seconds = std::env::var("VICINITY_SOAK_SECONDS");
    let seconds: u32 = seconds.map_or(3600, |seconds| seconds.parse().unwrap());
    let files = files(&Page::of(&empty(), 1).origin);
    let page = Stub::start(0, &files, vec![vec![Step::Live(large(100, 10))]]);
    let mut browser = Browser::start();
    browser.open(&page.origin, WIDE, false);
    browser.until(SHOWN);
    let shown = "document.querySelector('#version').textContent";
    let mut heaps = Vec::new();
    for sample in 0..=SAMPLES {
        if sample > 0 {
            let before = browser.eval(shown);
            sleep(Duration::from_secs_f64(
                f64::from(seconds) / f64::from(SAMPLES),
            ));
            assert_ne!(browser.eval(shown), before, "the figures are not live");
        }
        heaps.push(browser.heap_after_collection() / MEGABYTE);
        // Part of the samples are taken with the matrix on the screen, or with the charts of 15 minutes.
        match sample % 5 {
            2 => drop(browser.eval("document.querySelector('#matrix').scrollIntoView()")),
            3 => browser.click("#vm-table tbody .who"),
            4 => browser.press("Escape"),
            _ => {}
        }
    }
    let [least, most] = [f64::min, f64::max].map(|of| heaps.iter().copied().reduce(of).unwrap());
    println!(
        "heap after garbage collection, {seconds} s: first {:.2}, last {:.2}, least {least:.2}, most {most:.2} MB",
        heaps[0], heaps[20]
    );
    assert!(most - least < 10.0, "{heaps:.2?} MB");
    assert_eq!(browser.faults(&page.origin), Faults::default());
}
