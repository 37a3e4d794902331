//! A guest that has mounted a space: those parts of QEMU's `vhost-user-fs` and the kernel's virtio-fs driver
//! that writing files needs. Messages have the order and layout of QEMU 7.2 (`hw/virtio/vhost.c`), requests
//! those of `linux/fuse.h`.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use front_end::queue::{Buffer, NEXT, WRITE};
use front_end::wire::{addresses, number, request, state};
use front_end::{Queue, Ram, Wire};
use rustix::event::{PollFd, PollFlags, poll};

/// `VIRTIO_F_VERSION_1`, and `VHOST_USER_F_PROTOCOL_FEATURES`.
const FEATURES: u64 = 1 << 32 | 1 << 30;

const SIZE: u16 = 128;

/// Places in the guest's memory: two rings, the request, and the answer.
const RINGS: u64 = 0x1_0000;
const ASKED: u64 = 0x10_0000;
const ANSWER: u64 = 0x8_0000;
const MEMORY: u64 = 0x40_0000;

const INIT: u32 = 26;
const CREATE: u32 = 35;
const WRITE_FILE: u32 = 16;
const RELEASE: u32 = 18;
const ROOT: u64 = 1;
/// Bytes of the header of a request, of the header of an answer, and of the attributes of a file.
const IN: usize = 40;
const OUT: usize = 16;
const ENTRY: usize = 128;

/// Bytes written by one request.
const STEP: usize = 128 << 10;

/// A mounted space in a guest.
pub(crate) struct Mount {
    wire: Wire,
    ram: Arc<Ram>,
    queues: [Queue; 2],
    unique: u64,
}

impl Mount {
    /// Mounts the space whose process listens at `socket`. Returns `None` if the process has ended.
    pub(crate) fn new(socket: &Path) -> Option<Self> {
        let wire = Wire::new(UnixStream::connect(socket).ok()?.into());
        let ram = Arc::new(Ram::new(MEMORY));
        let queue = |at| {
            let mut queue = Queue::new(Arc::clone(&ram), at, SIZE, true, FEATURES);
            queue.begin_at(0);
            queue
        };
        let queues = [queue(RINGS), queue(2 * RINGS)];
        let mut mount = Self {
            wire,
            ram,
            queues,
            unique: 0,
        };
        mount.set_up()?;
        mount.ask(INIT, 0, &[7_u32, 31, 0, 0].map(u32::to_le_bytes).concat())?;
        Some(mount)
    }

    fn set_up(&self) -> Option<()> {
        let say = |request, payload: &[u8], fds: &[_]| {
            self.wire.send(request, payload, fds).then_some(())
        };
        say(request::GET_FEATURES, &[], &[])?;
        self.wire.reply()?;
        say(request::GET_PROTOCOL_FEATURES, &[], &[])?;
        self.wire.reply()?;
        // VHOST_USER_PROTOCOL_F_MQ
        say(request::SET_PROTOCOL_FEATURES, &number(1), &[])?;
        say(request::SET_OWNER, &[], &[])?;
        say(request::SET_FEATURES, &number(FEATURES), &[])?;
        let regions = self.ram.regions().iter();
        let table: Vec<u8> = regions.flat_map(|region| region.to_bytes()).collect();
        let table = [state(1, 0), table].concat();
        say(request::SET_MEM_TABLE, &table, &[self.ram.fd()])?;
        for (ring, queue) in (0..).zip(&self.queues) {
            let [descriptors, used, available] = queue.user_addresses();
            let place = addresses(ring, descriptors, used, available);
            let itself = number(u64::from(ring));
            say(request::SET_VRING_NUM, &state(ring, u32::from(SIZE)), &[])?;
            say(request::SET_VRING_BASE, &state(ring, 0), &[])?;
            say(request::SET_VRING_ADDR, &place, &[])?;
            say(request::SET_VRING_KICK, &itself, &[queue.kick_fd().as_fd()])?;
            say(request::SET_VRING_CALL, &itself, &[queue.call_fd().as_fd()])?;
            say(request::SET_VRING_ENABLE, &state(ring, 1), &[])?;
        }
        Some(())
    }

    /// Writes a file and closes it. Returns `None` if the process ended before it acknowledged
    /// that.
    pub(crate) fn publish(&mut self, name: &str, bytes: &[u8]) -> Option<()> {
        let create = [0o101_u32, 0o644, 0, 0].map(u32::to_le_bytes).concat();
        let create = [&create, name.as_bytes(), b"\0"].concat();
        let entry = self.ask(CREATE, ROOT, &create)?;
        let file = u64_at(&entry, 0);
        let handle = u64_at(&entry, ENTRY);
        for (step, part) in bytes.chunks(STEP).enumerate() {
            let at = (step * STEP) as u64;
            let mut write = [handle, at].map(u64::to_le_bytes).concat();
            write.extend(u32::try_from(part.len()).unwrap().to_le_bytes());
            write.resize(IN, 0);
            write.extend(part);
            self.ask(WRITE_FILE, file, &write)?;
        }
        let mut release = handle.to_le_bytes().to_vec();
        release.resize(24, 0);
        self.ask(RELEASE, file, &release)?;
        Some(())
    }

    /// Sends a request and returns its answer. Returns `None` if the process ended.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Option<Vec<u8>> {
        self.unique += 1;
        let length = u32::try_from(IN + body.len()).unwrap();
        let mut asked = [length, opcode].map(u32::to_le_bytes).concat();
        asked.extend([self.unique, node].map(u64::to_le_bytes).concat());
        asked.resize(IN, 0);
        asked.extend(body);
        self.ram.write(ASKED, &asked);
        let queue = &mut self.queues[1];
        let before = queue.used_index();
        let (address, answer) = (ASKED, ANSWER);
        queue.set_descriptor(0, Buffer { address, length }, NEXT, 1);
        let room = Buffer {
            address: answer,
            length: 4096,
        };
        queue.set_descriptor(1, room, WRITE, 0);
        queue.offer(0);
        queue.publish_and_kick();
        while queue.used_index() == before {
            let mut fds = [
                PollFd::new(queue.call_fd(), PollFlags::IN),
                PollFd::new(&self.wire, PollFlags::RDHUP),
            ];
            poll(&mut fds, None).unwrap();
            if queue.calls() == 0 && queue.used_index() == before {
                return None;
            }
        }
        let mut answer = vec![0; 4096];
        self.ram.read(ANSWER, &mut answer);
        let error = i32::from_le_bytes(answer[4..8].try_into().unwrap());
        assert_eq!(error, 0, "request {opcode} failed");
        assert_eq!(u64_at(&answer, 8), self.unique);
        Some(answer.split_off(OUT))
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
