//! On the loopback interface: there the kernel copies what it was lent when it delivers it, and keeps what the
//! other side has no room for.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::task::Waker;

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use space::store::{Attributes, ROOT};

use super::*;
use crate::body::Part;

const SLOT: u32 = 64 << 10;

/// A space with one file of a slot, that slot as it is sent, and a connection that lends with its other side.
fn rig() -> (Arc<Shared>, Bytes, Box<InFlight>, TcpStream) {
    let shared = Shared::new("test", SLOT, 4, 4).unwrap();
    let content = {
        let mut store = shared.store();
        let file = store.make(ROOT, b"f", false, Attributes::default());
        let file = file.unwrap();
        store.open(file, true).unwrap();
        let places = store.write(file, 0, u64::from(SLOT), Duration::ZERO);
        let bytes = vec![7; SLOT as usize];
        let (place, _) = places.unwrap()[0];
        shared.ram().file().write_all_at(&bytes, place).unwrap();
        store.close(file, true);
        store
            .first_published(|_, _, _| true)
            .unwrap()
            .object
            .content
    };
    let mut part = Part::new(&shared, content, 0, SLOT.into());
    let bytes = part.next().unwrap().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // Less than a slot.
    there.set_recv_buffer_size(4 << 10).unwrap();
    there
        .connect(&listener.local_addr().unwrap().into())
        .unwrap();
    let here = listener.accept().unwrap().0;
    here.set_nonblocking(true).unwrap();
    let lending = Box::new(InFlight::begin(&here, &shared).unwrap());
    (shared, bytes, lending, there.into())
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

async fn send(lending: &mut InFlight, bytes: &[u8]) -> usize {
    let from = [IoSlice::new(&[]), IoSlice::new(bytes)];
    poll_fn(|context| lending.poll_send(context, &from))
        .await
        .unwrap()
}

fn remove(shared: &Shared) {
    shared.store().remove(ROOT, b"f", false).unwrap();
}

#[test]
fn what_is_lent_is_held_until_it_was_taken_and_then_no_more_is_lent_where_it_is_copied() {
    runtime().block_on(async {
        let (shared, bytes, mut lending, mut there) = rig();
        let first = send(&mut lending, &bytes).await;
        assert!(lending.is_awaited());
        remove(&shared);
        drop(bytes);
        assert_eq!(shared.figures().used, 1);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; first];
            there.read_exact(&mut all).unwrap();
            (there, all)
        });
        poll_fn(|context| lending.poll_complete(context))
            .await
            .unwrap();
        assert_eq!(shared.figures().used, 0);
        assert_eq!(lending.verdict, Verdict::Copies);
        let (_there, all) = reader.join().unwrap();
        assert!(all == vec![7; first]);
    });
}

#[test]
fn one_is_lent_until_the_kernel_has_said_what_it_does() {
    runtime().block_on(async {
        let (_shared, bytes, mut lending, _there) = rig();
        assert!(send(&mut lending, &bytes).await > 0);
        assert!(send(&mut lending, &bytes).await > 0);
        lending.outstanding.complete(0, 0);
        assert!(!lending.is_awaited());
    });
}

#[test]
fn one_that_was_copied_is_the_last_that_is_lent() {
    runtime().block_on(async {
        let (_shared, bytes, mut lending, _there) = rig();
        lending.verdict = Verdict::Copies;
        send(&mut lending, &bytes).await;
        assert!(!lending.is_awaited());
    });
}

/// The limit on pinned memory is the process's, the capability that lifts it the thread's.
#[test]
fn without_leave_to_lend_the_kernel_copies() {
    let (mut sets, limit) = (capabilities(None).unwrap(), getrlimit(Resource::Memlock));
    if !sets.effective.contains(CapabilitySet::IPC_LOCK) {
        eprintln!("not run: it needs root, or the other tests would have the limit, too");
        return;
    }
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    setrlimit(
        Resource::Memlock,
        Rlimit {
            current: Some(0),
            ..limit
        },
    )
    .unwrap();
    runtime().block_on(async {
        let (_shared, bytes, mut lending, _there) = rig();
        assert!(send(&mut lending, &bytes).await > 0);
        assert!(!lending.is_awaited());
        assert_eq!(lending.verdict, Verdict::Unknown);
    });
    setrlimit(Resource::Memlock, limit).unwrap();
}

#[test]
fn who_takes_nothing_is_reset_and_the_slots_return() {
    let runtime = runtime();
    runtime.block_on(async {
        let (shared, bytes, mut lending, mut there) = rig();
        send(&mut lending, &bytes).await;
        assert!(lending.is_awaited());
        remove(&shared);
        drop(bytes);
        tokio::time::pause();
        lending.farewell().await;
        assert_eq!((shared.figures().used, shared.figures().stalled), (0, 1));
        let error = there.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn who_took_all_is_told_the_end() {
    runtime().block_on(async {
        let (_shared, bytes, mut lending, mut there) = rig();
        let count = send(&mut lending, &bytes).await;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            there.read_to_end(&mut all).map(|_| (there, all.len()))
        });
        lending.farewell().await;
        let (there, taken) = reader.join().unwrap().unwrap();
        assert_eq!(taken, count);
        // A reset would come after the end.
        assert!(there.take_error().unwrap().is_none());
    });
}

/// What comes in wakes who reads, while the error queue has something, too.
#[test]
fn what_is_said_is_heard() {
    use std::io::Write;
    runtime().block_on(async {
        let (_shared, bytes, mut lending, mut there) = rig();
        send(&mut lending, &bytes).await;
        let mut space = [0; 16];
        let mut to = ReadBuf::new(&mut space);
        let mut context = Context::from_waker(Waker::noop());
        assert!(lending.poll_read(&mut context, &mut to).is_pending());
        there.write_all(b"said").unwrap();
        poll_fn(|context| lending.poll_read(context, &mut to))
            .await
            .unwrap();
        assert_eq!(to.filled(), b"said");
        drop(there);
        to.clear();
        // Reset, for it has not taken all.
        assert!(
            poll_fn(|context| lending.poll_read(context, &mut to))
                .await
                .is_err()
        );
    });
}
