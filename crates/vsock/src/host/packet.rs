//! Packets of guests to the host.

use rustix::io::Errno;
use vhost::copy::Cursor;

use crate::connection::{Ends, Refusal, Verdict};
use crate::credit::CreditFault;
use crate::event::Event;
use crate::figures::increment;
use crate::header::{Operation, SHUTDOWN_BOTH, SocketType};
use crate::limits::MAX_HOST_STREAMS;
use crate::packet::Packet;
use crate::plane::Plane;
use crate::stream::{State, Stream};

impl Plane {
    /// Handles a packet to the host. The cursor is at its payload.
    pub(crate) fn packet_to_host(
        &mut self,
        from: usize,
        packet: &Packet,
        cursor: &mut Cursor<'_, '_>,
    ) {
        if packet.kind != SocketType::Stream {
            return self.refuse(from, packet, Refusal::NoConnection);
        }
        let ends = Ends::of(packet.source, packet.destination);
        let is_request = packet.operation == Operation::Request;
        if is_request && self.streams.counts(from).0 >= MAX_HOST_STREAMS {
            return self.refuse(from, packet, Refusal::TooMany);
        }
        match self.connections.judge(packet, self.now, |_, _| true) {
            Verdict::Begin => self.connect_program(from, packet, ends),
            Verdict::Forward => {
                if self.pass_to_stream(packet, ends, cursor).is_err() {
                    if let Some(number) = self.streams.find(ends) {
                        self.reset_stream(number);
                    }
                }
            }
            Verdict::End => {
                self.connections.remove(ends);
                self.close_stream(ends);
            }
            Verdict::Refuse(refusal) => self.refuse(from, packet, refusal),
            Verdict::Ignore => {}
        }
    }

    /// Asks the supervisor to connect to the program that listens for a guest's port of the host.
    fn connect_program(&mut self, from: usize, packet: &Packet, ends: Ends) {
        let mut stream = Stream::new(from, State::Connecting { ends }, None);
        // The first counts of a connection are always in order.
        let _in_order = stream.credit.update(packet.buf_alloc, packet.fwd_cnt);
        let request = self.streams.add(stream);
        if let Some(guest) = self.guests.get_mut(from) {
            increment(&mut guest.figures.begun);
        }
        self.queue_event(Event::Connect {
            guest: from,
            port: packet.destination.port,
            request,
        });
    }

    /// The supervisor has connected to a program, or could not.
    pub fn connected(&mut self, request: u64, socket: Option<std::os::fd::OwnedFd>) {
        let Some(stream) = self.streams.get_mut(request) else {
            // The guest gave up.
            return;
        };
        let State::Connecting { ends } = stream.state else {
            return;
        };
        let (guest, Some(socket)) = (stream.guest, socket) else {
            return self.reset_stream(request);
        };
        stream.socket = Some(socket);
        stream.state = State::Established { ends };
        let response = stream.header(Operation::Response, 0, 0);
        self.connections.establish(ends);
        self.reply(guest, response);
        if self.watch_stream(request).is_err() {
            return self.reset_stream(request);
        }
        self.streams.make_ready(request);
    }

    /// Handles a packet of a connection with a program.
    fn pass_to_stream(
        &mut self,
        packet: &Packet,
        ends: Ends,
        cursor: &mut Cursor<'_, '_>,
    ) -> Result<(), CreditFault> {
        let Some(number) = self.streams.find(ends) else {
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        stream.credit.update(packet.buf_alloc, packet.fwd_cnt)?;
        match packet.operation {
            Operation::Response => {
                if let State::Requested { ends, host_port } = stream.state {
                    let line = format!("OK {host_port}\n");
                    stream.greeting = line.len();
                    stream.out.extend(line.as_bytes());
                    stream.state = State::Established { ends };
                }
            }
            Operation::ReadWrite => {
                stream.credit.received(packet.length)?;
                let mut bytes = vec![0; packet.length as usize];
                cursor.read(&mut bytes);
                stream.out.extend(bytes);
            }
            Operation::CreditRequest => {
                let update = stream.header(Operation::CreditUpdate, 0, 0);
                let guest = stream.guest;
                self.reply(guest, update);
            }
            Operation::Shutdown => stream.guest_ended |= packet.flags & SHUTDOWN_BOTH,
            Operation::Request | Operation::Reset | Operation::CreditUpdate => {}
        }
        self.streams.make_ready(number);
        Ok(())
    }

    /// Adds a program's socket to the epoll set.
    pub(crate) fn watch_stream(&self, number: u64) -> Result<(), Errno> {
        use rustix::event::epoll::{self, EventFlags};
        let Some(socket) = self
            .streams
            .get(number)
            .and_then(|stream| stream.socket.as_ref())
        else {
            return Ok(());
        };
        let edge = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = crate::event_key::EventKey::Stream(number).data();
        // syscalls: epoll_ctl
        epoll::add(&self.poll, socket, data, edge)
    }
}
