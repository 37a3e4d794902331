//! A VM's peer without a VM: a front-end and a driver in this process, which compute next to nothing for a packet.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use front_end::queue::wait_for_any;
use front_end::{VsockDevice, VsockOptions, Wire};
use rustix::time::{ClockId, clock_gettime};
use vsock::credit::Credit;
use vsock::header::{Header, Operation, SHUTDOWN_BOTH, SHUTDOWN_SEND, SocketType};

use crate::rig::Rig;

/// What a VM needs to reach the peer and to be reached by it.
pub(crate) const CONFIG: &str = "
[[vsock]]
vm = \"peer\"
cid = 5
groups = [\"shop\"]
ports = [7000]
";

const CID: u32 = 5;

/// Largest payload of a packet.
const PACKET: u32 = 64 << 10;

/// The peer's receive space: as much as the program of the figures asks for.
const SPACE: u32 = 2 << 20;

/// How long a stream of the peer took, and how long its thread computed meanwhile.
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) busy: Duration,
}

/// The peer, with one connection at a time.
pub(crate) struct Peer {
    device: VsockDevice,
    credit: Credit,
    /// CID and port of the other end, and the port of this one.
    ends: (u32, u32, u32),
    next_port: u32,
}

impl Peer {
    /// Connects to the device, with receive buffers that have room for the largest packet.
    pub(crate) fn start(rig: &Rig) -> Self {
        let socket = UnixStream::connect(rig.daemon().path("vsock/peer.sock")).unwrap();
        let options = VsockOptions {
            size: 256,
            receive_bytes: Header::BYTES + PACKET,
            ..VsockOptions::default()
        };
        let mut device = VsockDevice::new(Wire::new(socket.into()), options);
        assert_eq!(device.start(|| {}), u64::from(CID));
        device.post(usize::MAX);
        Self {
            device,
            credit: Credit::new(SPACE),
            ends: (0, 0, 0),
            next_port: 1024,
        }
    }

    fn header(&mut self, operation: Operation, len: u32, flags: u32) -> Header {
        let (buf_alloc, fwd_cnt) = self.credit.tell();
        let (dst_cid, dst_port, src_port) = self.ends;
        Header {
            src_cid: CID.into(),
            dst_cid: dst_cid.into(),
            src_port,
            dst_port,
            len,
            kind: SocketType::Stream as u16,
            op: operation as u16,
            flags,
            buf_alloc,
            fwd_cnt,
        }
    }

    fn send(&mut self, operation: Operation, payload: &[u8], flags: u32) {
        let length = u32::try_from(payload.len()).unwrap();
        self.credit.sent(length);
        let header = self.header(operation, length, flags).to_bytes();
        while !self.device.send(&header, payload) {
            if !self.device.tx.ask_for_call() {
                wait_for_any(&[&self.device.tx]);
                let _ = self.device.tx.calls();
            }
        }
    }

    /// Notes what a packet says about credit, and posts its buffer again. Returns `None` for a packet of an earlier
    /// connection.
    fn note(&mut self, (header, payload): ([u8; 44], Vec<u8>)) -> Option<(Header, Vec<u8>)> {
        self.device.post(usize::MAX);
        let header = Header::from_bytes(&header);
        let from = (header.src_cid, header.src_port, header.dst_port);
        let (cid, port, own) = self.ends;
        if header.op == Operation::Request as u16 {
            self.credit = Credit::new(SPACE);
        } else if from != (u64::from(cid), port, own) {
            return None;
        }
        self.credit
            .update(header.buf_alloc, header.fwd_cnt)
            .unwrap();
        self.credit.received(header.len).unwrap();
        self.credit.taken(header.len);
        Some((header, payload))
    }

    fn receive(&mut self) -> (Header, Vec<u8>) {
        loop {
            let received = self.device.wait_to_receive();
            if let Some(received) = self.note(received) {
                return received;
            }
        }
    }

    /// Receives a packet of this operation, and skips others.
    fn until(&mut self, operation: Operation) -> (Header, Vec<u8>) {
        loop {
            let received = self.receive();
            if received.0.op == operation as u16 {
                return received;
            }
        }
    }

    /// Sends a stream to the program of the figures in a VM, in packets of the largest size and as fast as its credit
    /// allows.
    pub(crate) fn stream_to(&mut self, (cid, port): (u32, u32), seconds: f64) -> Sent {
        self.credit = Credit::new(SPACE);
        self.next_port += 1;
        self.ends = (cid, port, self.next_port);
        self.send(Operation::Request, &[], 0);
        self.until(Operation::Response);
        self.send(Operation::ReadWrite, b"s", 0);
        let (began, busy) = (Instant::now(), busy());
        let payload = vec![7; PACKET as usize];
        while began.elapsed().as_secs_f64() < seconds {
            while let Some(received) = self.device.receive() {
                self.note(received);
            }
            match self.credit.available() >= PACKET {
                true => self.send(Operation::ReadWrite, &payload, 0),
                false => drop(self.receive()),
            }
        }
        self.send(Operation::Shutdown, &[], SHUTDOWN_SEND);
        let (_, sum) = self.until(Operation::ReadWrite);
        let sent = Sent {
            bytes: u64::from_ne_bytes(sum.try_into().unwrap()),
            took: began.elapsed(),
            busy: self::busy() - busy,
        };
        self.send(Operation::Reset, &[], 0);
        sent
    }

    /// Serves one connection as the server of the figures does: counts a stream, or sends everything back. Returns how
    /// long this thread computed.
    pub(crate) fn serve(&mut self) -> Duration {
        let (request, _) = self.until(Operation::Request);
        let cid = u32::try_from(request.src_cid).unwrap();
        self.ends = (cid, request.src_port, request.dst_port);
        self.send(Operation::Response, &[], 0);
        let (_, hello) = self.until(Operation::ReadWrite);
        let (mut sum, busy) = (0_u64, busy());
        loop {
            let (header, payload) = self.receive();
            match Operation::from_number(header.op) {
                Some(Operation::ReadWrite) if hello == b"s" => {
                    sum += u64::from(header.len);
                    if self.credit.is_update_due() {
                        self.send(Operation::CreditUpdate, &[], 0);
                    }
                }
                Some(Operation::ReadWrite) => self.send(Operation::ReadWrite, &payload, 0),
                Some(Operation::Shutdown) if header.flags == SHUTDOWN_BOTH => break,
                Some(Operation::Shutdown) => {
                    self.send(Operation::ReadWrite, &sum.to_ne_bytes(), 0);
                }
                _ => {}
            }
        }
        self.send(Operation::Reset, &[], 0);
        self::busy() - busy
    }
}

/// Returns the CPU time of this thread.
fn busy() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}
