//! A confined space lends slots to the network: every call that this takes is one that it may make.

use std::process::Stdio;

use lab::host::{Tied, run};

use crate::common::until;
use crate::rig::{Rig, inside, step};
use crate::space::{guest, status, with_space};

const CONFIG: &str = "
[[space]]
vm = \"red\"
slots = 24
listen = \"0.0.0.0:0\"
allow = [\"10.78.0.2\"]
";

/// What a process waits with: one more for each connection that lends.
fn epolls(process: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    open.filter(|what| what.to_string_lossy().contains("eventpoll"))
        .count()
}

#[test]
fn a_confined_space_lends_and_lives() {
    let rig = Rig::isolated(CONFIG);
    // To the space, a client on another host.
    for words in [
        ["link", "set", "lo", "up"].as_slice(),
        &["address", "add", "10.78.0.1/24", "dev", "lo"],
        &["address", "add", "10.78.0.2/24", "dev", "lo"],
    ] {
        run(inside(rig.pid(), &[&["ip"], words].concat())).unwrap();
    }
    let [red] = rig.boot([with_space(&rig)]);
    guest(
        &red,
        "mkdir /s && mount -t virtiofs space /s && head -c 4000000 /dev/urandom > /tmp/r && cp /tmp/r /s/r",
    );
    let sum = guest(&red, "md5sum < /tmp/r");
    let port = status(&rig)["listen"].as_str().unwrap().to_owned();
    let url = format!("http://10.78.0.1:{}/r", port.rsplit_once(':').unwrap().1);
    let process = rig.daemon().process("space-red").unwrap();
    let before = epolls(process);
    let body = rig.folder().join("body");
    let body = body.to_str().unwrap();
    let fetch = [
        "curl",
        "--silent",
        "--interface",
        "10.78.0.2",
        "--output",
        body,
    ];

    step("a connection that has sent much lends");
    // Twice on one connection, so slowly that it is seen.
    let slowly = ["--limit-rate", "1M", &url, "--output", body, &url];
    let mut client = inside(rig.pid(), &[&fetch[..], &slowly].concat());
    client.stdin(Stdio::null());
    let mut client = Tied::spawn(client).unwrap();
    until("a connection lends", || {
        let ended = client.ended().unwrap();
        assert!(ended.is_none(), "the client: {ended:?}");
        epolls(process) > before
    });
    until("it has ended", || client.ended().unwrap().is_some());
    assert_eq!(
        run(inside(rig.pid(), &["md5sum", body])).unwrap()[..32],
        sum[..32]
    );

    step("and lets go of what it lent");
    until("nobody lends", || epolls(process) == before);
    guest(&red, "rm /s/r");
    crate::space::until(&rig, "slots return", |status| status["used"] == 0);
    assert_eq!(status(&rig)["restarts"], 0);
}
