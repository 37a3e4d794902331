//! Connects of a node's endpoints, and connect requests that wait for the program: those to endpoints that are not open, and introductions.
//!
//! Two programs that may not use the interface can talk to each other in datagrams of UDP, but neither has reason to trust what arrives at its
//! socket. So the nodes that carry frames for them introduce them to each other: the connect request has the address of one
//! program, and the reply refuses the connection and has the address of the other program. The receiving node's program can also accept the request as an
//! ordinary connect.

use std::net::SocketAddr;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::event::{Address, Code, Event, PartnerId, SendError};
use crate::limits::{ENDPOINTS, LARGE_PIPELINE, PENDING_CONNECTS};
use crate::node::Node;
use crate::seq::Seq;
use crate::wire::{BAD_KEY, Connect, Ends, INTRODUCED, Packet};

impl Node {
    /// Connects an endpoint to another. The connect ends with an [`Event::Connected`] that has this
    /// token.
    ///
    /// # Errors
    /// The endpoint is not open, or the table of hosts or partners is full.
    pub fn connect(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        key: u32,
        token: u64,
    ) -> Result<(), SendError> {
        self.start_connect(now, endpoint, to, (key, token, None))
    }

    /// Introduces the program of an endpoint, which takes all frames in datagrams at an address, to another endpoint. The introduction ends with
    /// an [`Event::Introduced`] that has this token and the address of the other endpoint's program, or like a
    /// [connect](Self::connect). It succeeds as a connect if the other endpoint takes frames, or its node knows no introductions.
    ///
    /// # Errors
    /// The endpoint is not open, or the table of hosts or partners is full.
    pub fn introduce(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        key: u32,
        token: u64,
        program: SocketAddr,
    ) -> Result<(), SendError> {
        self.start_connect(now, endpoint, to, (key, token, Some(program)))
    }

    fn start_connect(
        &mut self,
        now: Duration,
        endpoint: u8,
        to: Address,
        connect: (u32, u64, Option<SocketAddr>),
    ) -> Result<(), SendError> {
        let host = self.host(now, to.host).ok_or(SendError::NoHost)?;
        let id = (host, to.endpoint);
        self.route(endpoint, id).ok_or(SendError::NoHost)?;
        let started = self.with_endpoint(now, endpoint, |endpoint, context| {
            endpoint.connect(id, to, connect, context)
        });
        match started {
            None => Err(SendError::NotOpen),
            Some(false) => Err(SendError::NoHost),
            Some(true) => Ok(()),
        }
    }

    /// Whether the program decides about a request although the endpoint may be open: it introduces a program. The two may be connected already,
    /// if this is a repetition; then the endpoint answers it.
    pub(crate) fn is_introduction(&self, to: u8, id: PartnerId, connect: &Connect) -> bool {
        let partner = self
            .endpoint(to)
            .and_then(|endpoint| endpoint.partners.get(&id));
        let is_connected = partner.is_some_and(|one| one.session == Some(connect.session));
        connect.status.is_none() && connect.program.is_some() && to < ENDPOINTS && !is_connected
    }

    /// Ends the use of an endpoint by its program, which may have ended before its partners have acknowledged everything. The connections stay until
    /// they are [disconnected](Self::disconnect). Others that connect are not answered until the next program [opens](Self::open) the
    /// endpoint, with a key of its own.
    pub fn retire(&mut self, endpoint: u8) {
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.key = None;
            endpoint.connecting.clear();
        }
    }

    /// Whether a request is for the next program with an endpoint: the last one has [ended](Self::retire), and had no such connection.
    pub(crate) fn is_for_next_program(&self, to: u8, id: PartnerId, connect: &Connect) -> bool {
        let retired = self.endpoint(to).filter(|endpoint| endpoint.key.is_none());
        let is_new = |endpoint: &Endpoint| !endpoint.is_known_to_former(id, connect);
        connect.status.is_none() && retired.is_some_and(is_new)
    }

    /// Stores a connect that waits for the program, and asks the program once.
    pub(crate) fn add_pending(&mut self, endpoint: u8, from: Address, connect: &Connect) {
        let full = self.pending_connects.len() >= PENDING_CONNECTS
            && !self.pending_connects.contains_key(&(endpoint, from));
        if full {
            return;
        }
        if self
            .pending_connects
            .insert((endpoint, from), *connect)
            .is_none()
        {
            self.out.events.push_back(Event::ConnectRequest {
                endpoint,
                from,
                session: connect.session,
                key: connect.key_or_session,
                peer_key: connect.own_key,
                program: connect.program,
            });
        }
    }

    /// Answers the connects that waited for this endpoint to open.
    pub(crate) fn accept_pending(&mut self, now: Duration, endpoint: u8) {
        let all = (endpoint, Address::FIRST)..=(endpoint, Address::LAST);
        let waiting = self.pending_connects.range(all);
        // The program answers introductions one by one.
        let connects = waiting.filter(|(_, connect)| connect.program.is_none());
        let accepted: Vec<_> = connects.map(|((_, from), _)| *from).collect();
        for from in accepted {
            self.accept(now, endpoint, from);
        }
    }

    /// Accepts an introduction as an ordinary connect to its endpoint, which is open.
    pub fn accept(&mut self, now: Duration, endpoint: u8, from: Address) {
        let pending = self.pending_connects.remove(&(endpoint, from));
        if let (Some(connect), Some(host)) = (pending, self.hosts.find(from.host)) {
            // Without the address, it does not wait for the program once more.
            let connect = Connect {
                program: None,
                ..connect
            };
            self.receive_connect(now, host, from.host, &connect);
        }
    }

    /// Answers an introduction with the address of the program that has the endpoint. The two are not connected. If the request that waits now is an
    /// ordinary connect, the node forgets it, and asks the program when the peer repeats it.
    pub fn answer_introduction(&mut self, endpoint: u8, from: Address, program: SocketAddr) {
        let pending = self.pending_connects.remove(&(endpoint, from));
        let introduction = pending.filter(|connect| connect.program.is_some());
        let (Some(request), Some(host)) = (introduction, self.hosts.find(from.host)) else {
            return;
        };
        let answer = Connect {
            status: Some(INTRODUCED),
            pipeline: Some(LARGE_PIPELINE),
            program: Some(program),
            ..reply_to(&request, host)
        };
        if let Some(route) = self.route(endpoint, (host, from.endpoint)) {
            self.out.send(route, Packet::Connect(answer));
        }
    }

    /// Refuses a connect that waits for the program. With `None`, the node forgets the
    /// request without an answer, and asks the program again when the peer repeats it.
    pub fn refuse(&mut self, now: Duration, endpoint: u8, from: Address, code: Option<Code>) {
        let pending = self.pending_connects.remove(&(endpoint, from));
        let (Some(connect), Some(host)) = (pending, self.hosts.find(from.host)) else {
            return;
        };
        match code {
            None => {}
            Some(Code::BadKey) => {
                let reply = Connect {
                    status: Some(BAD_KEY),
                    ..reply_to(&connect, host)
                };
                self.refuse_with(now, endpoint, (host, from.endpoint), Packet::Connect(reply));
            }
            Some(_) => self.nack(now, host, connect.ends, Seq(0), None),
        }
    }
}

/// Returns what the replies to a request have in common that make no connection. `host` is the index of the request's sender.
fn reply_to(request: &Connect, host: u16) -> Connect {
    Connect {
        ends: Ends {
            to: request.ends.from,
            from: request.ends.to,
        },
        index: host,
        key_or_session: 0,
        own_key: None,
        pipeline: None,
        udp: None,
        program: None,
        ..*request
    }
}
