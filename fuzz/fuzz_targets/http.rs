//! A client of a space that sends arbitrary bytes of HTTP/1.1 and HTTP/2, in pieces.
//!
//! An input is a sequence of pieces, each after its length (one byte; 0 waits until the server is idle). The target reads
//! all responses. Afterwards no slot is in use for the client.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use memory_plane::SpaceState;
use memory_plane::access::Access;
use memory_plane::http::{Service, serve_stream};
use space::store::{Attributes, ROOT};
use tokio::io::AsyncWriteExt;
use tokio::runtime::{Builder, Runtime};

const SLOT: u32 = 4096;

/// Names, lengths and dates of the space's files.
const FILES: [(&str, usize, u64); 4] = [
    ("a", 5, 1_000_000_000),
    ("empty", 0, 0),
    ("large", 10_000, 253_402_300_799),
    ("odd.html", 4096, u64::MAX),
];

fn service() -> &'static (Service, Runtime) {
    static SERVICE: OnceLock<(Service, Runtime)> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let state = SpaceState::new("fuzz", SLOT, 16, 16).expect("memory");
        for (name, length, date) in FILES {
            let mut store = state.store();
            let date = Duration::from_secs(date);
            let inode = store.create(ROOT, name.as_bytes(), false, Attributes::default());
            let inode = inode.expect("room");
            store.open(inode, true).expect("it is there");
            store.write(inode, 0, length as u64, date).expect("room");
            let change = |attributes: &mut Attributes| attributes.modified = date;
            store.set_attributes(inode, change).expect("it is there");
            store.close(inode, true);
        }
        let service = Service {
            state,
            access: Arc::new(Access {
                allow: vec!["127.0.0.0/8".parse().expect("a network")],
                token: None,
            }),
            tls: None,
        };
        // The clock is simulated: it advances when all tasks wait.
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        (service, runtime.expect("a runtime"))
    })
}

fuzz_target!(|data: &[u8]| {
    let (service, runtime) = service();
    let used = service.state.store().slots().used();
    let client = async {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (mut responses, mut requests) = tokio::io::split(ours);
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let serve = serve_stream(service, theirs, from);
        let read = async { tokio::io::copy(&mut responses, &mut tokio::io::sink()).await };
        let send = async {
            let mut rest = data;
            while let Some((length, tail)) = rest.split_first() {
                let (piece, tail) = tail.split_at(tail.len().min(usize::from(*length)));
                rest = tail;
                if piece.is_empty() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                } else if requests.write_all(piece).await.is_err() {
                    break;
                }
            }
            requests.shutdown().await
        };
        drop(tokio::join!(serve, read, send));
    };
    runtime.block_on(client);
    // The client cannot change a file, and the slots of all responses are free again.
    assert_eq!(service.state.store().slots().used(), used);
});
