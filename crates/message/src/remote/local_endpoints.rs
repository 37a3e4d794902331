//! The endpoints of a gateway's board: their connects, and connects to them.

use rustix::io::Errno;
use window::Window;
use window::attach::{Channel, Message};

use super::control_message::{ControlMessage, FROM_MEMBER, LinkId, OtherEnd};
use super::gateway::Gateway;
use super::local_link::{CONNECTING, LOCAL_LINK, LocalLink, State};
use crate::handshake::{ACCEPTED, CLOSED, FULL, Hello, HelloReply};
use crate::limits::INCOMING;
use crate::peer::Fault;

impl Gateway {
    /// Accepts connections of endpoints of this board.
    pub(super) fn accept(&mut self) -> Result<(), Fault> {
        for _ in 0..INCOMING {
            let Ok(Some(channel)) = self.listener.accept() else {
                break;
            };
            if self.incoming.len() >= INCOMING {
                self.evict_oldest_incoming()?;
            }
            self.next = self.next.wrapping_add(1);
            let token = CONNECTING | u64::from(self.next);
            if self.waiter.add(&channel, token).is_ok() {
                self.incoming.insert(self.next, channel);
            }
        }
        Ok(())
    }

    /// Closes the oldest connection without an offer, to make room.
    fn evict_oldest_incoming(&mut self) -> Result<(), Fault> {
        if let Some((&first, _)) = self.incoming.first_key_value() {
            self.handle_incoming(first)?;
            self.incoming.remove(&first);
        }
        Ok(())
    }

    /// Handles an endpoint's offer, which names its target, or the end of its socket.
    pub(super) fn handle_incoming(&mut self, id: u32) -> Result<(), Fault> {
        let Some(channel) = self.incoming.get(&id) else {
            return Ok(());
        };
        let message = channel.receive();
        if matches!(message, Ok(None)) {
            return Ok(());
        }
        let Some(channel) = self.incoming.remove(&id) else {
            return Ok(());
        };
        self.waiter.remove(&channel);
        let Ok(Some(Message::Offer {
            window: None,
            handshake_data,
            ..
        })) = message
        else {
            return Ok(());
        };
        let Some(hello) = Hello::decode(&handshake_data) else {
            return Ok(());
        };
        let link = self.new_link_id();
        if self.add_local_link(link, channel, State::Asked) {
            self.control.send(ControlMessage::Connect {
                link,
                window: 0,
                hello,
                other_end: OtherEnd::default(),
            })?;
        }
        Ok(())
    }

    /// Returns an unused link number.
    fn new_link_id(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1);
            let link = self.next | FROM_MEMBER;
            if !self.local_links.contains_key(&link) {
                return link;
            }
        }
    }

    fn add_local_link(&mut self, link: LinkId, channel: Channel, state: State) -> bool {
        let token = LOCAL_LINK | u64::from(link);
        let watched = self.waiter.add(&channel, token).is_ok();
        if watched {
            self.local_links.insert(link, LocalLink { channel, state });
        }
        watched
    }

    /// Handles a message or the end of an endpoint that has a link, or is about to.
    pub(super) fn handle_local(&mut self, link: LinkId) -> Result<(), Fault> {
        for _ in 0..window::limits::WAKEUPS_PER_READ {
            let Some(local) = self.local_links.get_mut(&link) else {
                return Ok(());
            };
            match (local.channel.receive(), local.state) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some(Message::Wake)), State::Up) => {
                    self.control.send(ControlMessage::Ring { link })?;
                }
                (Ok(Some(Message::Wake)), _) => {}
                (Ok(Some(Message::Answer { handshake_data, .. })), State::Offered) => {
                    let reply = HelloReply::decode(&handshake_data);
                    let (verdict, session) =
                        reply.map_or((FULL, 0), |reply| (reply.verdict, reply.session));
                    match verdict {
                        ACCEPTED => local.state = State::Up,
                        _ => self.remove_local_link(link),
                    }
                    self.control.send(ControlMessage::Answer {
                        link,
                        window: 0,
                        verdict,
                        session,
                        other_end: OtherEnd::default(),
                        program: reply.and_then(|reply| reply.program),
                    })?;
                }
                (_, State::Offered) => {
                    self.remove_local_link(link);
                    self.control.send(ControlMessage::refusal(link, CLOSED))?;
                }
                (_, _) => {
                    self.remove_local_link(link);
                    self.control.send(ControlMessage::Close { link })?;
                }
            }
        }
        Ok(())
    }

    fn remove_local_link(&mut self, link: LinkId) {
        if let Some(local) = self.local_links.remove(&link) {
            self.waiter.remove(&local.channel);
        }
    }

    /// Offers a remote endpoint's connect to an endpoint here; returns the verdict if that fails.
    pub(super) fn offer(&mut self, link: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
        // Programs of other users create the sockets, and this process may have more rights than they.
        let channel = match Channel::connect_directly(&self.board.socket(hello.to.endpoint)) {
            Ok(channel) => channel,
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::LOOP) => return Err(CLOSED),
            Err(_) => return Err(FULL),
        };
        let window = self.region.link(window).ok_or(FULL)?;
        let offered = channel.offer(Some(&window), None, &hello.encode());
        offered.map_err(|_| CLOSED)?;
        match self.add_local_link(link, channel, State::Offered) {
            true => Ok(()),
            false => Err(FULL),
        }
    }

    /// Passes the host's answer to the endpoint that connects.
    pub(super) fn answered(
        &mut self,
        link: LinkId,
        window: u32,
        reply: HelloReply,
    ) -> Result<(), Fault> {
        let Some(local) = self.local_links.get_mut(&link) else {
            // The endpoint has closed meanwhile, and the host was notified.
            return Ok(());
        };
        let accepted = reply.verdict == ACCEPTED;
        let window: Option<Window> = match accepted {
            true => self.region.link(window),
            false => None,
        };
        let reply = reply.encode();
        let channel = &local.channel;
        let sent = channel.answer(accepted, window.as_ref(), None, &reply);
        match accepted {
            true if sent.is_ok() && window.is_some() => local.state = State::Up,
            true => {
                self.remove_local_link(link);
                self.control.send(ControlMessage::Close { link })?;
            }
            false => self.remove_local_link(link),
        }
        Ok(())
    }

    /// Handles the close of the other end of a link.
    pub(super) fn close(&mut self, link: LinkId) -> Result<(), Fault> {
        let Some(local) = self.local_links.get_mut(&link) else {
            return Ok(());
        };
        if local.state == State::Up {
            // The endpoint may still have to take records from the window.
            local.state = State::Closing;
            local.channel.shutdown_write();
            return Ok(());
        }
        if local.state != State::Closing {
            self.remove_local_link(link);
            self.control.send(ControlMessage::Close { link })?;
        }
        Ok(())
    }
}
