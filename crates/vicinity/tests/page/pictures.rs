//! Makes the pictures of the documents: the page, `vicinity top` and the demo's report, in the light theme.
//!
//! `VICINITY_SCREENSHOTS=docs/pictures cargo test --package vicinity --test page pictures -- --ignored`, after `make demo`
//! for its report. Chromium draws the terminal, too: tmux tells what its cells have.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::recordings::demo;
use super::{Browser, Page, SHOWN};
use crate::common::root;

const COLUMNS: usize = 132;
const LINES: usize = 27;

#[test]
#[ignore = "makes pictures"]
fn pictures_of_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.ndjson");
    std::fs::write(&file, demo()).unwrap();
    let mut browser = Browser::start();
    let page = Page::replay(&file);
    browser.open(&page.url, (1180, 720), false);
    browser.until(SHOWN);
    // So that the sparklines have their minute.
    let seconds = demo().lines().count().min(45) as u64;
    sleep(Duration::from_secs(seconds));
    browser.picture("page");
    let text = folder.path().join("top.html");
    std::fs::write(&text, terminal(&file, seconds)).unwrap();
    browser.open(&url(&text), (1110, 500), false);
    browser.until("document.querySelector('pre').textContent.includes('WAIT')");
    browser.picture("top");
    let report = root().join("target/demo/report.html");
    assert!(report.exists(), "run `make demo` first");
    browser.open(&url(&report), (1180, 900), false);
    browser.until("document.querySelector('h1') !== null");
    browser.picture("demo-report");
}

fn url(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Runs `vicinity top` in a terminal for some seconds, and returns its screen as HTML.
fn terminal(recording: &Path, seconds: u64) -> String {
    let server = format!("vicinity-pictures-{}", std::process::id());
    let tmux = |words: &[&str]| {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &server, "-f", "/dev/null"]).args(words);
        tmux.env("LC_ALL", "C.UTF-8").output().unwrap()
    };
    let command = format!(
        "{} top --replay {}",
        env!("CARGO_BIN_EXE_vicinity"),
        recording.display()
    );
    let (width, height) = (COLUMNS.to_string(), LINES.to_string());
    let started = tmux(&["new-session", "-d", "-x", &width, "-y", &height, &command]);
    assert!(started.status.success(), "{started:?}");
    sleep(Duration::from_secs(seconds));
    let screen = tmux(&["capture-pane", "-e", "-p"]);
    tmux(&["kill-server"]);
    html(&String::from_utf8(screen.stdout).unwrap())
}

/// The state of a terminal's pen (ECMA-48, 8.3.117).
#[derive(Clone, Copy, Default)]
struct Pen {
    colour: Option<usize>,
    bold: bool,
    dim: bool,
    reversed: bool,
}

/// The first eight colours of a light terminal.
const COLOURS: [&str; 8] = [
    "#1b1f24", "#b3261e", "#1a7f37", "#8a5a00", "#0a5fb4", "#7a3e9d", "#0b6e7f", "#57606a",
];

impl Pen {
    fn set(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                // A colour of the palette: 5, and its number.
                38 | 48 => {
                    let number = codes.nth(1).unwrap_or(0);
                    if code == 38 {
                        self.colour = Some(number % 8);
                    }
                }
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                7 => self.reversed = true,
                22 => (self.bold, self.dim) = (false, false),
                27 => self.reversed = false,
                colour @ 30..=37 => self.colour = Some(colour - 30),
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    fn style(self) -> String {
        let text = self.colour.map_or("#1b1f24", |colour| COLOURS[colour]);
        let (text, ground) = match self.reversed {
            true => ("#fff", text),
            false => (text, "#fff"),
        };
        let weight = if self.bold { 600 } else { 400 };
        let opacity = if self.dim { 0.75 } else { 1.0 };
        format!("color:{text};background:{ground};font-weight:{weight};opacity:{opacity}")
    }
}

/// Returns a page with the text of a terminal, whose colours are escape sequences.
fn html(screen: &str) -> String {
    let mut page = "<!doctype html><meta charset=utf-8><style>body{margin:12px;background:#fff}\
        pre{font:13.5px/1.28 'DejaVu Sans Mono',monospace;margin:0}</style><pre>"
        .to_owned();
    let mut pen = Pen::default();
    for (number, part) in screen.split("\u{1b}[").enumerate() {
        let text = match part.split_once('m').filter(|_| number > 0) {
            Some((codes, text)) => {
                pen.set(codes);
                text
            }
            None => part,
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        write!(page, "<span style='{}'>{text}</span>", pen.style()).unwrap();
    }
    page + "</pre>"
}
