//! Sends and receives the frames of an interface through an AF_XDP socket, without network headers. Offloads
//! of a VM's frames are executed here in software; received frames are forwarded unchanged.
//!
//! The kernel owns the first half of the chunks of the UMEM, for received frames. The switch owns the second
//! half, for frames to send. A chunk is reused when it returns through its ring.

use std::os::fd::BorrowedFd;
use std::sync::PoisonError;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::control::{XDP_CHUNK, XDP_ENTRIES, XdpLayout};
use crate::frame::{Head, Rest};
use crate::offload::Plan;
use crate::raw::xdp::{Descriptor, Frames, Ring};
use crate::sync::Mutex;
use crate::translate::{Scratch, plan_for};

/// The mmap offset of each ring (linux/if_xdp.h).
const RX: u64 = 0;
const TX: u64 = 0x8000_0000;
const FILL: u64 = 0x1_0000_0000;
const COMPLETION: u64 = 0x1_8000_0000;

/// Frames that the kernel sends in one system call in copy mode.
const BATCH: u32 = 32;

/// Chunks that should be free before a frame is sent, because a GSO frame becomes many segments.
const PIECES: usize = 64;

/// The rings of a socket, for both directions.
#[derive(Debug)]
pub(crate) struct Xdp {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

#[derive(Debug)]
struct Incoming {
    rx: Ring<Descriptor>,
    fill: Ring<u64>,
    frames: Frames,
}

#[derive(Debug)]
struct Outgoing {
    tx: Ring<Descriptor>,
    completion: Ring<u64>,
    frames: Frames,
    /// Chunks that are free for frames to send.
    free: Vec<u64>,
    scratch: Scratch,
    /// Scratch memory for the body of a frame without offloads.
    body: Box<[u8]>,
}

impl Xdp {
    /// Maps the rings of a new socket, and its UMEM.
    ///
    /// # Errors
    /// The kernel refuses a mapping.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        layout: XdpLayout,
        memory: BorrowedFd<'_>,
    ) -> Result<Self, Errno> {
        let mut incoming = Incoming {
            rx: Ring::map(socket, RX, layout.rx)?,
            fill: Ring::map(socket, FILL, layout.fill)?,
            frames: Frames::map(memory)?,
        };
        let chunk = |number: u32| u64::from(number) * u64::from(XDP_CHUNK);
        for number in 0..XDP_ENTRIES {
            incoming.fill.put(chunk(number));
        }
        let outgoing = Outgoing {
            tx: Ring::map(socket, TX, layout.tx)?,
            completion: Ring::map(socket, COMPLETION, layout.completion)?,
            frames: Frames::map(memory)?,
            free: (XDP_ENTRIES..2 * XDP_ENTRIES).map(chunk).collect(),
            scratch: Scratch::default(),
            body: vec![0; XDP_CHUNK as usize].into_boxed_slice(),
        };
        Ok(Self {
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(outgoing),
        })
    }

    /// Receives one frame; returns its length in bytes, or `None` when there is none now.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let descriptor = incoming.rx.take()?;
            let got = incoming.frames.read(descriptor, buffer);
            let chunk = descriptor.address - descriptor.address % u64::from(XDP_CHUNK);
            incoming.fill.put(chunk);
            if got.is_some() {
                return got;
            }
        }
    }

    /// Puts a frame into the transmit ring, after segmentation and checksums in software.
    ///
    /// # Errors
    /// There is no room, or the frame is too long or does not match its network header.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        head: &Head,
        rest: &Rest<'_, '_>,
    ) -> Result<(), Errno> {
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        outgoing.reap();
        if outgoing.free.len() < PIECES {
            flush(socket);
            outgoing.reap();
        }
        let Outgoing {
            tx,
            frames,
            free,
            scratch,
            body,
            ..
        } = &mut *outgoing;
        let mut put = |ethernet: &[u8], rest: &[u8]| {
            let chunk = free.pop().ok_or(Errno::NOBUFS)?;
            let fits =
                frames.write(chunk, 0, ethernet) && frames.write(chunk, ethernet.len(), rest);
            let length = u32::try_from(ethernet.len() + rest.len()).map_err(|_| Errno::MSGSIZE)?;
            let descriptor = Descriptor {
                address: chunk,
                length,
                options: 0,
            };
            if fits && tx.put(descriptor) {
                return Ok(());
            }
            free.push(chunk);
            Err(if fits { Errno::NOBUFS } else { Errno::MSGSIZE })
        };
        let (plan, offload) = plan_for(head, rest, 0).ok_or(Errno::INVAL)?;
        let mut rest = *rest;
        if plan == Plan::PassThrough {
            let ethernet = head.ethernet();
            let length = (head.length as usize).saturating_sub(ethernet.len());
            let body = body.get_mut(..length).ok_or(Errno::MSGSIZE)?;
            let whole = rest.read(body) == body.len();
            whole.then_some(()).ok_or(Errno::INVAL)?;
            return put(&ethernet, body);
        }
        let translated = scratch.translate(plan, &offload, head, &mut rest);
        let mut translated = translated.ok_or(Errno::INVAL)?;
        let mut pieces = 0;
        while let Some((head, rest)) = translated.piece(pieces) {
            put(&head.ethernet(), rest)?;
            pieces += 1;
        }
        Ok(())
    }
}

impl Outgoing {
    /// Takes the chunks of sent frames back from the completion ring.
    fn reap(&mut self) {
        while let Some(chunk) = self.completion.take() {
            // Never more chunks than exist.
            if self.free.len() < XDP_ENTRIES as usize {
                self.free.push(chunk);
            }
        }
    }
}

/// Has the kernel send the frames in the transmit ring. Frames that it does not take now are sent with the
/// next ones.
pub(crate) fn flush(socket: BorrowedFd<'_>) {
    for _ in 0..=XDP_ENTRIES / BATCH {
        let flags = SendFlags::DONTWAIT;
        // syscalls: sendmsg
        let sent = sendmsg(socket, &[], &mut SendAncillaryBuffer::default(), flags);
        if sent != Err(Errno::AGAIN) {
            return;
        }
    }
}
