//! Endpoints of a gateway's board: they connect to others, and others to them.

use rustix::io::Errno;
use window::Window;
use window::attach::{Channel, Message};

use super::control_message::{ControlMessage, FROM_MEMBER, LinkId};
use super::gateway::{Gateway, answer};
use super::local::{CONNECTING, LOCAL, Local, State};
use crate::handshake::{ACCEPTED, CLOSED, FULL, Hello, Welcome};
use crate::limits::INCOMING;
use crate::peer::Fault;

impl Gateway {
    /// An endpoint of this board connects.
    pub(super) fn accept(&mut self) -> Result<(), Fault> {
        for _ in 0..INCOMING {
            let Ok(Some(channel)) = self.listener.accept() else {
                break;
            };
            if self.incoming.len() >= INCOMING {
                self.make_room()?;
            }
            self.next = self.next.wrapping_add(1);
            let token = CONNECTING | u64::from(self.next);
            if self.waiter.add(&channel, token).is_ok() {
                self.incoming.insert(self.next, channel);
            }
        }
        Ok(())
    }

    /// Whoever connected first and says nothing gives its place to others.
    fn make_room(&mut self) -> Result<(), Fault> {
        if let Some((&first, _)) = self.incoming.first_key_value() {
            self.hear_incoming(first)?;
            self.incoming.remove(&first);
        }
        Ok(())
    }

    /// It says whom it wants.
    pub(super) fn hear_incoming(&mut self, id: u32) -> Result<(), Fault> {
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
            greeting,
            ..
        })) = message
        else {
            return Ok(());
        };
        let Some(hello) = Hello::decode(&greeting) else {
            return Ok(());
        };
        let link = self.number();
        if self.keep(link, channel, State::Asked) {
            self.trunk.say(ControlMessage::Connect {
                link,
                window: 0,
                hello,
                seat: None,
            })?;
        }
        Ok(())
    }

    /// A number that no link has.
    fn number(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1);
            let link = self.next | FROM_MEMBER;
            if !self.locals.contains_key(&link) {
                return link;
            }
        }
    }

    fn keep(&mut self, link: LinkId, channel: Channel, state: State) -> bool {
        let token = LOCAL | u64::from(link);
        let watched = self.waiter.add(&channel, token).is_ok();
        if watched {
            self.locals.insert(link, Local { channel, state });
        }
        watched
    }

    /// An endpoint that has a link, or is about to, says something or is gone.
    pub(super) fn hear_local(&mut self, link: LinkId) -> Result<(), Fault> {
        for _ in 0..window::limits::WAKES {
            let Some(local) = self.locals.get_mut(&link) else {
                return Ok(());
            };
            match (local.channel.receive(), local.state) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some(Message::Wake)), State::Up) => {
                    self.trunk.say(ControlMessage::Ring { link })?;
                }
                (Ok(Some(Message::Wake)), _) => {}
                (Ok(Some(Message::Answer { greeting, .. })), State::Offered) => {
                    let welcome = Welcome::decode(&greeting);
                    let (verdict, session) =
                        welcome.map_or((FULL, 0), |welcome| (welcome.verdict, welcome.session));
                    match verdict {
                        ACCEPTED => local.state = State::Up,
                        _ => self.forget(link),
                    }
                    self.trunk.say(answer(link, verdict, session))?;
                }
                (_, State::Offered) => {
                    self.forget(link);
                    self.trunk.say(answer(link, CLOSED, 0))?;
                }
                (_, _) => {
                    self.forget(link);
                    self.trunk.say(ControlMessage::Close { link })?;
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, link: LinkId) {
        if let Some(local) = self.locals.remove(&link) {
            self.waiter.remove(&local.channel);
        }
    }

    /// Somebody far away connects to an endpoint here; the verdict when that cannot be.
    pub(super) fn offer(&mut self, link: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
        let channel = match Channel::connect(&self.board.socket(hello.to.endpoint)) {
            Ok(channel) => channel,
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(CLOSED),
            Err(_) => return Err(FULL),
        };
        let window = self.region.link(window).ok_or(FULL)?;
        let offered = channel.offer(Some(&window), None, &hello.encode());
        offered.map_err(|_| CLOSED)?;
        match self.keep(link, channel, State::Offered) {
            true => Ok(()),
            false => Err(FULL),
        }
    }

    /// What an endpoint here asked for is there, or cannot be.
    pub(super) fn answered(
        &mut self,
        link: LinkId,
        window: u32,
        welcome: Welcome,
    ) -> Result<(), Fault> {
        let Some(local) = self.locals.get_mut(&link) else {
            // It went away meanwhile, and the host was told.
            return Ok(());
        };
        let accepted = welcome.verdict == ACCEPTED;
        let window: Option<Window> = match accepted {
            true => self.region.link(window),
            false => None,
        };
        let welcome = welcome.encode();
        let channel = &local.channel;
        let told = channel.answer(accepted, window.as_ref(), None, &welcome);
        match accepted {
            true if told.is_ok() && window.is_some() => local.state = State::Up,
            true => {
                self.forget(link);
                self.trunk.say(ControlMessage::Close { link })?;
            }
            false => self.forget(link),
        }
        Ok(())
    }

    /// The other end of a link is closed.
    pub(super) fn close(&mut self, link: LinkId) -> Result<(), Fault> {
        let Some(local) = self.locals.get_mut(&link) else {
            return Ok(());
        };
        if local.state == State::Up {
            // It may have to take what is in the window still.
            local.state = State::Closing;
            local.channel.finish();
            return Ok(());
        }
        if local.state != State::Closing {
            self.forget(link);
            self.trunk.say(ControlMessage::Close { link })?;
        }
        Ok(())
    }
}
