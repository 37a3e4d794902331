//! A daemon that sends what a test says: the page's files are those of the program, with its headers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::recordings::interval;

/// What the server does in an answer to `/v1/live`. After the last step it closes the connection.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends a line as an event.
    Line(String),
    /// Sends bytes as they are.
    Bytes(Vec<u8>),
    /// Sends the intervals that begin with these figures, one a second, until the other side closes the connection.
    Live(Value),
    /// Keeps the connection until the server ends.
    Stay,
}

impl Step {
    pub(crate) fn of(live: &Value) -> Self {
        Self::Line(live.to_string())
    }
}

/// A server on a port of its own, which ends with this value.
pub(crate) struct Stub {
    pub(crate) origin: String,
    pub(crate) port: u16,
    over: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

/// The files of the page, as answers.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Returns the files of the server at `origin`.
pub(crate) fn files(origin: &str) -> Files {
    let paths = [
        "/",
        "/page.css",
        "/page.js",
        "/daemon.js",
        "/worker.js",
        "/interval.js",
        "/vm_table.js",
        "/matrix.js",
        "/detail.js",
        "/format.js",
    ];
    let get = |path: &str| {
        let mut stream = TcpStream::connect(origin.trim_start_matches("http://")).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}");
        (path.to_owned(), answer)
    };
    paths.map(get).into()
}

impl Stub {
    /// Answers each `/v1/live` with the next of these lists of steps, and further ones with the last.
    pub(crate) fn start(port: u16, files: &Files, answers: Vec<Vec<Step>>) -> Self {
        let listener = bind(port);
        let port = listener.local_addr().unwrap().port();
        let (over, open) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let stub = Self {
            origin: format!("http://127.0.0.1:{port}"),
            port,
            over: Arc::clone(&over),
            open: Arc::clone(&open),
        };
        let (files, answers) = (Arc::new(files.clone()), Arc::new(Mutex::new(answers)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let (files, answers) = (Arc::clone(&files), Arc::clone(&answers));
                thread::spawn(move || {
                    // A browser that closes a connection early is no fault of the test.
                    drop(serve(&stream, &files, &answers));
                    drop(stream.shutdown(std::net::Shutdown::Both));
                });
            }
        });
        stub
    }
}

/// The port of a server that has just ended may be in use for a moment.
fn bind(port: u16) -> TcpListener {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("port {port} stays in use");
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        // Has the thread look at `over`.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(
    mut stream: &TcpStream,
    files: &Files,
    answers: &Mutex<Vec<Vec<Step>>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    if let Some(file) = files.get(path) {
        return stream.write_all(file);
    }
    if path.starts_with("/v1/history") {
        return stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]",
        );
    }
    if path != "/v1/live" {
        return stream.write_all(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        );
    }
    let steps = {
        let mut answers = answers.lock().unwrap();
        match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        }
    };
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
    )?;
    for step in steps {
        let bytes = match step {
            Step::Line(line) => event(&line),
            Step::Bytes(bytes) => bytes,
            Step::Live(live) => {
                for second in 0.. {
                    chunk(stream, &event(&interval(&live, second).to_string()))?;
                    thread::sleep(Duration::from_secs(1));
                }
                return Ok(());
            }
            Step::Stay => {
                // Returns when the other side or the test closes the connection.
                reader.read_line(&mut line)?;
                return Ok(());
            }
        };
        chunk(stream, &bytes)?;
        // A page shows only the last line of what arrives at once.
        thread::sleep(Duration::from_millis(15));
    }
    Ok(())
}

fn event(line: &str) -> Vec<u8> {
    format!("data: {line}\n\n").into_bytes()
}

fn chunk(mut stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    write!(stream, "{:x}\r\n", bytes.len())?;
    stream.write_all(bytes)?;
    stream.write_all(b"\r\n")
}
