//! Frames of an interface by a socket of AF_XDP: bare, without a network header. What a VM leaves to
//! be done is done here in software; what comes in is taken as it is.
//!
//! The first half of the chunks is the kernel's, for frames that come in; the second half is ours, for
//! those that go out. A chunk that came back by its ring is used again.

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

/// Where each ring is, in the socket (linux/if_xdp.h).
const RX: u64 = 0;
const TX: u64 = 0x8000_0000;
const FILL: u64 = 0x1_0000_0000;
const COMPLETION: u64 = 0x1_8000_0000;

/// Frames that the kernel sends in one go where it copies them.
const BATCH: u32 = 32;

/// Pieces of a long frame: there should be room for as many.
const PIECES: usize = 64;

/// A socket's rings, of both directions.
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
    /// Chunks that are ours to fill.
    free: Vec<u64>,
    scratch: Scratch,
    /// The body of a frame that goes as it is.
    body: Box<[u8]>,
}

impl Xdp {
    /// Use a new socket, and its memory of frames.
    ///
    /// # Errors
    /// The kernel refuses to map it.
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

    /// Receive one frame; how many bytes. None when there is none for now.
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

    /// Put a frame into the ring, cut and summed where that was left to be done.
    ///
    /// # Errors
    /// There is no room, or the frame is too long or not what its header says.
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
    /// Chunks of frames that have gone are ours again.
    fn reap(&mut self) {
        while let Some(chunk) = self.completion.take() {
            // Never more than there are.
            if self.free.len() < XDP_ENTRIES as usize {
                self.free.push(chunk);
            }
        }
    }
}

/// Have the kernel send what is in the ring. What it does not take now goes with the next.
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
