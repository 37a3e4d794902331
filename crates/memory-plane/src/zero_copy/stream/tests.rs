//! Tests on the loopback interface. There the kernel copies the bytes of a zero-copy send at delivery, and keeps the pages of
//! bytes for which the receiver has no buffer.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::task::Waker;

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use space::store::{Attributes, ROOT};

use super::*;
use crate::body::ObjectReader;

const SLOT: u32 = 64 << 10;

/// Returns a space with one file of one slot, the bytes of that slot, a zero-copy connection and its peer.
fn setup() -> (Arc<SpaceState>, Bytes, Box<ZeroCopyStream>, TcpStream) {
    let state = SpaceState::new("test", SLOT, 4, 4).unwrap();
    let content = {
        let mut store = state.store();
        let file = store.create(ROOT, b"f", false, Attributes::default());
        let file = file.unwrap();
        store.open(file, true).unwrap();
        let ranges = store.write(file, 0, u64::from(SLOT), Duration::ZERO);
        let bytes = vec![7; SLOT as usize];
        let (offset, _) = ranges.unwrap()[0];
        state
            .slot_file()
            .file()
            .write_all_at(&bytes, offset)
            .unwrap();
        store.close(file, true);
        store
            .first_published(|_, _, _| true)
            .unwrap()
            .object
            .content
    };
    let mut reader = ObjectReader::new(&state, content, 0, SLOT.into());
    let bytes = reader.next().unwrap().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // Smaller than a slot, so that a send stays outstanding.
    client.set_recv_buffer_size(4 << 10).unwrap();
    client
        .connect(&listener.local_addr().unwrap().into())
        .unwrap();
    let server = listener.accept().unwrap().0;
    server.set_nonblocking(true).unwrap();
    let zero_copy = Box::new(ZeroCopyStream::new(&server, &state).unwrap());
    (state, bytes, zero_copy, client.into())
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

async fn send(zero_copy: &mut ZeroCopyStream, bytes: &[u8]) -> usize {
    let from = [IoSlice::new(&[]), IoSlice::new(bytes)];
    poll_fn(|context| zero_copy.poll_send(context, &from))
        .await
        .unwrap()
}

fn remove(state: &SpaceState) {
    state.store().remove(ROOT, b"f", false).unwrap();
}

#[test]
fn slots_stay_in_use_until_completion_and_a_copied_send_ends_zero_copy() {
    runtime().block_on(async {
        let (state, bytes, mut zero_copy, mut client) = setup();
        let first = send(&mut zero_copy, &bytes).await;
        assert!(zero_copy.has_outstanding());
        remove(&state);
        drop(bytes);
        assert_eq!(state.figures().used, 1);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; first];
            client.read_exact(&mut all).unwrap();
            (client, all)
        });
        poll_fn(|context| zero_copy.poll_complete(context))
            .await
            .unwrap();
        assert_eq!(state.figures().used, 0);
        assert_eq!(zero_copy.kernel_behaviour, KernelBehaviour::Copies);
        let (_there, all) = reader.join().unwrap();
        assert!(all == vec![7; first]);
    });
}

#[test]
fn only_one_send_is_zero_copy_until_its_completion() {
    runtime().block_on(async {
        let (_shared, bytes, mut zero_copy, _there) = setup();
        assert!(send(&mut zero_copy, &bytes).await > 0);
        assert!(send(&mut zero_copy, &bytes).await > 0);
        zero_copy.outstanding.complete(0, 0);
        assert!(!zero_copy.has_outstanding());
    });
}

#[test]
fn no_send_is_zero_copy_after_one_was_copied() {
    runtime().block_on(async {
        let (_shared, bytes, mut zero_copy, _there) = setup();
        zero_copy.kernel_behaviour = KernelBehaviour::Copies;
        send(&mut zero_copy, &bytes).await;
        assert!(!zero_copy.has_outstanding());
    });
}

/// The limit on locked memory belongs to the process, the capability that overrides it to the thread.
#[test]
fn a_send_without_locked_memory_is_copied() {
    let (mut sets, limit) = (capabilities(None).unwrap(), getrlimit(Resource::Memlock));
    if !sets.effective.contains(CapabilitySet::IPC_LOCK) {
        eprintln!("skipped: without root, the limit would apply to the other tests, too");
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
        let (_shared, bytes, mut zero_copy, _there) = setup();
        assert!(send(&mut zero_copy, &bytes).await > 0);
        assert!(!zero_copy.has_outstanding());
        assert_eq!(zero_copy.kernel_behaviour, KernelBehaviour::Unknown);
    });
    setrlimit(Resource::Memlock, limit).unwrap();
}

#[test]
fn drain_resets_a_receiver_that_reads_nothing_and_frees_the_slots() {
    let runtime = runtime();
    runtime.block_on(async {
        let (state, bytes, mut zero_copy, mut client) = setup();
        send(&mut zero_copy, &bytes).await;
        assert!(zero_copy.has_outstanding());
        remove(&state);
        drop(bytes);
        tokio::time::pause();
        zero_copy.drain().await;
        assert_eq!((state.figures().used, state.figures().stalled), (0, 1));
        let error = client.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn drain_ends_in_order_when_the_receiver_has_read_all() {
    runtime().block_on(async {
        let (_shared, bytes, mut zero_copy, mut client) = setup();
        let count = send(&mut zero_copy, &bytes).await;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| (client, all.len()))
        });
        zero_copy.drain().await;
        let (client, received) = reader.join().unwrap().unwrap();
        assert_eq!(received, count);
        // A reset would arrive after the end of the stream.
        assert!(client.take_error().unwrap().is_none());
    });
}

/// Incoming bytes wake the reader even while the error queue has messages.
#[test]
fn received_bytes_wake_the_reader_while_completions_arrive() {
    use std::io::Write;
    runtime().block_on(async {
        let (_shared, bytes, mut zero_copy, mut client) = setup();
        send(&mut zero_copy, &bytes).await;
        let mut space = [0; 16];
        let mut to = ReadBuf::new(&mut space);
        let mut context = Context::from_waker(Waker::noop());
        assert!(zero_copy.poll_read(&mut context, &mut to).is_pending());
        client.write_all(b"said").unwrap();
        poll_fn(|context| zero_copy.poll_read(context, &mut to))
            .await
            .unwrap();
        assert_eq!(to.filled(), b"said");
        drop(client);
        to.clear();
        // The peer resets the connection, because it has not read all bytes.
        assert!(
            poll_fn(|context| zero_copy.poll_read(context, &mut to))
                .await
                .is_err()
        );
    });
}
