//! The way out of a board to the boards of other members, and in from there.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use window::attach::{Channel, Listener, Message};
use window::pci::Interrupts;
use window::region::{Region, Seat};
use window::waiter::{Token, Waiter, Woken};
use window::{Side, Window};

use super::BURST;
use super::directory;
use super::names::Names;
use super::note::{FROM_MEMBER, LinkId, Note};
use super::pauses::Pauses;
use super::trunk::Trunk;
use super::way::{Bell, Way, begin, reach};
use crate::address::Board;
use crate::greeting::{ACCEPTED, CLOSED, FULL, Hello, UNREACHABLE, Welcome};
use crate::limits::INCOMING;
use crate::peer::Fault;
use crate::status::Error;

/// A board's way out and in.
#[derive(Debug)]
pub struct Gateway {
    board: Board,
    listener: Listener,
    waiter: Waiter,
    region: Region,
    seat: Seat,
    /// What it began with.
    number: u32,
    bell: Bell,
    trunk: Trunk,
    /// Connections that have not said yet what they want.
    incoming: HashMap<u32, Channel>,
    locals: HashMap<LinkId, Local>,
    next: u32,
    /// What wakes it in a VM.
    interrupts: Option<Interrupts>,
    pauses: Pauses,
    /// As the uplink knows them; and whether the board's directory has them all.
    names: Names,
    noted: bool,
}

/// An endpoint of this board that has a link.
#[derive(Debug)]
struct Local {
    channel: Channel,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It wants to connect; the host has not answered yet.
    Asked,
    /// Somebody wants to connect to it; it has not answered yet.
    Offered,
    /// It has its link.
    Up,
    /// The other end is closed; it has not let go yet.
    Closing,
}

const LISTENER: Token = 0;
const HOST: Token = 1;
const OTHER: Token = 2;
const INTERRUPT: Token = 3;
const CONNECTING: Token = 1 << 32;
const LOCAL: Token = 2 << 32;

impl Gateway {
    /// Join the message plane, as who the host says this is, on the board in `folder`.
    ///
    /// # Errors
    /// There is no device or socket, the host does not answer, or the board has a gateway already.
    pub fn join(folder: &Path, way: &Way) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (bell, region, id) = reach(way)?;
        if let Bell::Client(client) = &bell {
            waiter.add(client, HOST)?;
        }
        let place = u32::from(id).saturating_sub(1);
        let seat = region.seat(place);
        let seatless = || Error::Join("the host gave no seat".to_owned());
        let seat = seat.ok_or_else(seatless)?;
        let number = begin(&seat, &bell)?;
        let board = Board::claim(folder, seat.nic())?;
        directory::clear(folder)?;
        let listener = match Listener::bind(&board.gateway()) {
            Err(Errno::ADDRINUSE) => {
                let text = format!("{} has a gateway already", folder.display());
                return Err(Error::Join(text));
            }
            other => other?,
        };
        waiter.add(&listener, LISTENER)?;
        let trunk = region.trunk(place).ok_or_else(seatless)?;
        let trunk = Trunk::new(trunk.ends(Side::Guest)?);
        let interrupts = bell.interrupts()?;
        if let Some(interrupts) = &interrupts {
            waiter.add(interrupts, INTERRUPT)?;
        }
        seat.listen(interrupts.is_some());
        let blind = matches!(bell, Bell::Device(_)) && interrupts.is_none();
        Ok(Self {
            board,
            listener,
            waiter,
            region,
            seat,
            number,
            bell,
            trunk,
            incoming: HashMap::new(),
            locals: HashMap::new(),
            next: 0,
            interrupts,
            pauses: Pauses::new(blind),
            names: Names::default(),
            noted: true,
        })
    }

    /// The NIC id of its board.
    #[must_use]
    pub fn nic(&self) -> u64 {
        self.board.nic()
    }

    /// Whether the host can wake it at any time. Otherwise it looks now and then.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        !self.pauses.blind
    }

    /// Have `go_on` of [`run`](Self::run) asked also when there is something to read here.
    ///
    /// # Errors
    /// No memory, or no descriptor one can wait for.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// Work until `go_on`, asked at least once a second, says no.
    ///
    /// # Errors
    /// The host is gone, or began anew without this gateway.
    pub fn run(&mut self, go_on: impl Fn() -> bool) -> Result<(), Error> {
        while go_on() {
            self.seat.beat();
            if self.seat.heard() != self.number {
                return Err(Error::Join("the host has ended this gateway".to_owned()));
            }
            let nonsense = |fault| Error::Join(format!("the host's trunk is broken: {fault}"));
            let moved = self.hear_host().map_err(nonsense)?;
            if !std::mem::replace(&mut self.noted, true) {
                // Names are missed, not messages.
                let _told = directory::write(self.board.folder(), self.names.faces());
            }
            let pause = match self.trunk.has_note() {
                true => Duration::ZERO,
                false => self.pauses.next(moved),
            };
            let woken = self.waiter.wait(Some(pause))?;
            self.attend(&woken)?;
            self.trunk.flush().map_err(nonsense)?;
            if std::mem::take(&mut self.trunk.told) {
                self.bell.ring();
            }
        }
        Ok(())
    }

    /// Do what the sockets ask for.
    fn attend(&mut self, woken: &Woken) -> Result<(), Error> {
        for &token in &woken.tokens {
            let said = match token {
                LISTENER => {
                    self.accept();
                    Ok(())
                }
                OTHER => Ok(()),
                INTERRUPT => {
                    self.interrupts.iter().for_each(Interrupts::take);
                    Ok(())
                }
                HOST => match &self.bell {
                    Bell::Client(client) if !client.hear() => {
                        return Err(Error::Join("the host is gone".to_owned()));
                    }
                    _ => Ok(()),
                },
                token if token >= LOCAL => self.hear_local(low(token)),
                token => self.hear_incoming(low(token)),
            };
            said.map_err(|fault| Error::Join(format!("the host's trunk is broken: {fault}")))?;
        }
        self.pauses.disturbed |= !woken.tokens.is_empty();
        Ok(())
    }

    /// An endpoint of this board connects.
    fn accept(&mut self) {
        while self.incoming.len() < INCOMING {
            let Ok(Some(channel)) = self.listener.accept() else {
                return;
            };
            self.next = self.next.wrapping_add(1);
            let token = CONNECTING | u64::from(self.next);
            if self.waiter.add(&channel, token).is_ok() {
                self.incoming.insert(self.next, channel);
            }
        }
    }

    /// It says whom it wants.
    fn hear_incoming(&mut self, id: u32) -> Result<(), Fault> {
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
            self.trunk.say(Note::Connect {
                link,
                window: 0,
                hello,
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
    fn hear_local(&mut self, link: LinkId) -> Result<(), Fault> {
        for _ in 0..window::limits::WAKES {
            let Some(local) = self.locals.get_mut(&link) else {
                return Ok(());
            };
            match (local.channel.receive(), local.state) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some(Message::Wake)), State::Up) => self.trunk.say(Note::Ring { link })?,
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
                    self.trunk.say(Note::Close { link })?;
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

    /// Do what the host says; whether it said anything.
    fn hear_host(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..BURST {
            let Some(note) = self.trunk.hear()? else {
                break;
            };
            moved = true;
            match note {
                Note::Connect {
                    link,
                    window,
                    hello,
                } => {
                    if let Err(verdict) = self.offer(link, window, &hello) {
                        self.trunk.say(answer(link, verdict, 0))?;
                    }
                }
                Note::Answer {
                    link,
                    window,
                    verdict,
                    session,
                } => self.answered(link, window, verdict, session)?,
                Note::Ring { link } => {
                    if let Some(local) = self.locals.get(&link) {
                        local.channel.ring();
                    }
                }
                Note::Close { link } => self.close(link)?,
                Note::Lost { link } => {
                    if let Some(local) = self.locals.get(&link) {
                        let welcome = Welcome {
                            verdict: UNREACHABLE,
                            session: 0,
                            fences: false,
                        };
                        // Gone: it needs not know.
                        let channel = &local.channel;
                        let _told = channel.answer(false, None, None, &welcome.encode());
                    }
                }
                Note::Name { nic, part, text } => {
                    self.noted &= !self.names.hear(nic, part, text);
                }
                // For uplinks.
                Note::Member { .. } => {}
            }
        }
        Ok(moved)
    }

    /// Somebody far away connects to an endpoint here; the verdict when that cannot be.
    fn offer(&mut self, link: LinkId, window: u32, hello: &Hello) -> Result<(), u32> {
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
    fn answered(
        &mut self,
        link: LinkId,
        window: u32,
        verdict: u32,
        session: u64,
    ) -> Result<(), Fault> {
        let Some(local) = self.locals.get_mut(&link) else {
            // It went away meanwhile, and the host was told.
            return Ok(());
        };
        let accepted = verdict == ACCEPTED;
        let window: Option<Window> = match accepted {
            true => self.region.link(window),
            false => None,
        };
        let welcome = Welcome {
            verdict,
            session,
            fences: false,
        };
        let welcome = welcome.encode();
        let channel = &local.channel;
        let told = channel.answer(accepted, window.as_ref(), None, &welcome);
        match accepted {
            true if told.is_ok() && window.is_some() => local.state = State::Up,
            true => {
                self.forget(link);
                self.trunk.say(Note::Close { link })?;
            }
            false => self.forget(link),
        }
        Ok(())
    }

    /// The other end of a link is closed.
    fn close(&mut self, link: LinkId) -> Result<(), Fault> {
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
            self.trunk.say(Note::Close { link })?;
        }
        Ok(())
    }
}

#[allow(clippy::cast_possible_truncation, reason = "picking half of a word")]
fn low(token: Token) -> u32 {
    token as u32
}

fn answer(link: LinkId, verdict: u32, session: u64) -> Note {
    Note::Answer {
        link,
        window: 0,
        verdict,
        session,
    }
}
