//! A confined space process lends slots to the network. Its sandbox allows every system call that
//! it needs for this.

use std::io::Read;
use std::process::Stdio;

use vm_harness::host::{ChildProcess, run};

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

/// Bytes of the file: more than a connection sends by copying before the process lends slots to it.
const LENGTH: usize = 4_000_000;

/// Returns the number of epoll instances of a process. It has one more for each connection that
/// lends slots.
fn epolls(process: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    open.filter(|what| what.to_string_lossy().contains("eventpoll"))
        .count()
}

#[test]
fn a_confined_space_sends_without_copies() {
    let rig = Rig::isolated(CONFIG);
    // For the space, this is a client on another host.
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
        &format!(
            "mkdir /s && mount -t virtiofs space /s && head -c {LENGTH} /dev/urandom > /tmp/r && cp /tmp/r /s/r"
        ),
    );
    let sum = guest(&red, "md5sum < /tmp/r");
    let port = status(&rig)["listen"].as_str().unwrap().to_owned();
    let url = format!("http://10.78.0.1:{}/r", port.rsplit_once(':').unwrap().1);
    let process = rig.daemon().process("space-red").unwrap();
    let before = epolls(process);

    step("a connection that has sent much data has zero-copy sends in flight");
    let curl = ["curl", "--silent", "--interface", "10.78.0.2", &url, &url];
    let mut client = inside(rig.pid(), &curl);
    client.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut client = ChildProcess::spawn(client).unwrap();
    let mut pipe = client.stdout().unwrap();
    let mut once = vec![0; LENGTH];
    pipe.read_exact(&mut once).unwrap();
    // The process cannot complete the second transfer before the client reads on.
    until("a connection lends", || epolls(process) > before);
    let mut again = Vec::new();
    pipe.read_to_end(&mut again).unwrap();
    until("it has ended", || client.ended().unwrap().is_some());
    assert!(client.ended().unwrap().unwrap().success());
    assert!(once == again, "the same file, twice");
    let body = rig.folder().join("body");
    std::fs::write(&body, once).unwrap();
    let body = body.to_str().unwrap();
    let read = run(inside(rig.pid(), &["md5sum", body])).unwrap();
    assert_eq!(read[..32], sum[..32]);

    step("the zero-copy sends complete");
    until("no zero-copy send to be in flight", || {
        epolls(process) == before
    });
    guest(&red, "rm /s/r");
    crate::space::until(&rig, "slots return", |status| status["used"] == 0);
    assert_eq!(status(&rig)["restarts"], 0);
}
