//! A space that pushes: its VM writes, a store of the host's gets the files, and slots return.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::rig::{Rig, step};
use crate::space::{guest, space, status, until, with_space};

/// What a store has, by path.
type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A store that takes what it is given.
fn store(at: SocketAddr) -> Files {
    let files = Files::default();
    let listener = TcpListener::bind(at).unwrap();
    let kept = Arc::clone(&files);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            keep(stream.unwrap(), &kept);
        }
    });
    files
}

/// Serve one connection to its end.
fn keep(stream: TcpStream, files: &Files) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap() == 0 {
                return;
            }
        }
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        assert_eq!(first.next(), Some("PUT"), "{head}");
        let path = first.next().unwrap().to_owned();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        files.lock().unwrap().insert(path, body);
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
    }
}

#[test]
fn a_vm_writes_a_store_has_it_and_slots_return() {
    let at = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = format!("[[space]]\nvm = \"red\"\nslots = 8\npush = \"http://{at}/in/\"\n");
    let mut rig = Rig::new(Some(&config));
    let [red] = rig.boot([with_space(&rig)]);
    step("no store is there: the guest and the host are told");
    guest(&red, "mkdir -p /s && mount -t virtiofs space /s");
    guest(
        &red,
        "head -c 700000 /dev/urandom > /tmp/r && cp /tmp/r '/s/r 1.bin'",
    );
    guest(
        &red,
        "until grep -q 'failed.*cannot be reached' /s/.vicinity-push; do sleep 0.1; done",
    );
    until(&rig, "it is told", |status| {
        let trouble = status["push_trouble"].as_str();
        trouble.is_some_and(|why| why.contains("cannot be reached"))
    });
    assert!(space(&rig, &["list"]).contains(&format!("to http://{at}/in/")));
    step("it comes: the file goes");
    let files = store(at);
    guest(&red, "while test -e '/s/r 1.bin'; do sleep 0.1; done");
    let told = guest(&red, "cat /s/.vicinity-push");
    assert_eq!(told, "1 sent, 0 to send, 0 set aside");
    let sum = guest(&red, "cksum < /tmp/r");
    std::fs::write(
        rig.folder().join("r"),
        &files.lock().unwrap()["/in/r%201.bin"],
    )
    .unwrap();
    let mut cksum = lab::host::command("sh");
    cksum
        .arg("-c")
        .arg(format!("cksum < {}", rig.folder().join("r").display()));
    assert_eq!(lab::host::run(cksum).unwrap().trim(), sum);
    step("three times as much as the space has");
    guest(
        &red,
        "for i in 1 2 3 4 5 6; do cat /tmp/r /tmp/r > /s/f$i || exit 1; done",
    );
    guest(&red, "while ls /s | grep -q f; do sleep 0.1; done");
    until(&rig, "all slots return", |status| status["used"] == 0);
    let status = status(&rig);
    assert_eq!(
        (&status["pushed"], &status["slots"]),
        (&7.into(), &8.into())
    );
    assert_eq!(status["push_trouble"], serde_json::Value::Null);
    let files = files.lock().unwrap();
    assert!((1..=6).all(|file| files[&format!("/in/f{file}")].len() == 1_400_000));
    drop(files);
    drop(red);
    rig.end(Signal::TERM);
}
