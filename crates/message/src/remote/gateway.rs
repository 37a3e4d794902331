//! The way out of a board to the boards of other members, and in from there.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use window::Side;
use window::attach::{Channel, Listener};
use window::pci::Interrupts;
use window::region::{Region, Seat};
use window::waiter::{Token, Waiter, Woken};

use super::control_message::{ControlMessage, LinkId};
use super::directory;
use super::limits::BURST;
use super::local::{LOCAL, Local};
use super::names::Names;
use super::poll_backoff::PollBackoff;
use super::transport::{Bell, Transport, begin, reach};
use super::trunk::Trunk;
use crate::address::Board;
use crate::error::Error;
use crate::handshake::{Hello, Seats, UNREACHABLE, Welcome};
use crate::peer::Fault;

#[cfg(test)]
mod tests;

/// A board's way out and in.
#[derive(Debug)]
pub struct Gateway {
    pub(super) board: Board,
    pub(super) listener: Listener,
    pub(super) waiter: Waiter,
    pub(super) region: Region,
    seat: Seat,
    /// Which seat that is.
    pub(super) place: u32,
    /// What it began with.
    number: u32,
    bell: Bell,
    pub(super) trunk: Trunk,
    /// Connections that have not said yet what they want.
    pub(super) incoming: BTreeMap<u32, Channel>,
    pub(super) locals: HashMap<LinkId, Local>,
    pub(super) next: u32,
    /// What wakes it in a VM.
    interrupts: Option<Interrupts>,
    pauses: PollBackoff,
    /// As the uplink knows them; and whether the board's directory has them all.
    names: Names,
    noted: bool,
    /// When that was last written.
    written: Option<Instant>,
}

/// Between two writes of the board's directory: other hosts decide how often names change.
const WRITE: Duration = Duration::from_secs(1);

const LISTENER: Token = 0;
const HOST: Token = 1;
const OTHER: Token = 2;
const INTERRUPT: Token = 3;

impl Gateway {
    /// Join the message plane, as who the host says this is, on the board in `folder`.
    ///
    /// # Errors
    /// There is no device or socket, the host does not answer, or the board has a gateway already.
    pub fn join(folder: &Path, way: &Transport) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (bell, region, id) = reach(way)?;
        if let Bell::Client(client) = &bell {
            waiter.add(client, HOST)?;
        }
        let place = u32::from(id).saturating_sub(1);
        let seat = region.seat(place);
        let seatless = || Error::Join("the host gave no seat".to_owned());
        let seat = seat.ok_or_else(seatless)?;
        // Before the host is told: whoever sees that this board has joined finds it ready, and another gateway
        // of it is not disturbed by one that cannot be.
        let board = Board::claim(folder, seat.nic())?;
        let listener = match Listener::bind(&board.gateway()) {
            Err(Errno::ADDRINUSE) => {
                let text = format!("{} has a gateway already", folder.display());
                return Err(Error::Join(text));
            }
            other => other?,
        };
        directory::clear(folder)?;
        waiter.add(&listener, LISTENER)?;
        let number = begin(&seat, &bell)?;
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
            place,
            number,
            bell,
            trunk,
            incoming: BTreeMap::new(),
            locals: HashMap::new(),
            next: 0,
            interrupts,
            pauses: PollBackoff::new(blind),
            names: Names::default(),
            noted: true,
            written: None,
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
            let moved = self.look()?;
            let pause = match self.trunk.has_note() {
                true => Duration::ZERO,
                false => self.pauses.next(moved),
            };
            let woken = self.waiter.wait(Some(pause))?;
            self.attend(&woken)?;
        }
        Ok(())
    }

    /// Show that this gateway lives, do what the host says, and tell it what is to be told: a sleep may
    /// come next. Whether the host said anything.
    fn look(&mut self) -> Result<bool, Error> {
        self.seat.beat();
        if self.seat.heard() != self.number {
            return Err(Error::Join("the host has ended this gateway".to_owned()));
        }
        let moved = self.hear_host().map_err(broken)?;
        if !self.noted && self.written.is_none_or(|at| at.elapsed() >= WRITE) {
            (self.noted, self.written) = (true, Some(Instant::now()));
            // Names are missed, not messages.
            let _told = directory::write(self.board.folder(), self.names.faces());
        }
        self.trunk.flush().map_err(broken)?;
        if std::mem::take(&mut self.trunk.told) {
            self.bell.ring();
        }
        Ok(moved)
    }

    /// Do what the sockets ask for.
    fn attend(&mut self, woken: &Woken) -> Result<(), Error> {
        for &token in &woken.tokens {
            let said = match token {
                LISTENER => self.accept(),
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
            said.map_err(broken)?;
        }
        self.pauses.disturbed |= !woken.tokens.is_empty();
        Ok(())
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
                ControlMessage::Connect {
                    link,
                    window,
                    hello,
                    seat,
                } => {
                    let seats = self.seats(seat);
                    if let Err(verdict) = self.offer(link, window, &Hello { seats, ..hello }) {
                        self.trunk.say(answer(link, verdict, 0))?;
                    }
                }
                ControlMessage::Answer {
                    link,
                    window,
                    verdict,
                    session,
                    seat,
                } => {
                    let welcome = Welcome {
                        verdict,
                        session,
                        fences: false,
                        seats: self.seats(seat),
                    };
                    self.answered(link, window, welcome)?;
                }
                ControlMessage::Ring { link } => {
                    if let Some(local) = self.locals.get(&link) {
                        local.channel.ring();
                    }
                }
                ControlMessage::Close { link } => self.close(link)?,
                ControlMessage::Lost { link } => {
                    if let Some(local) = self.locals.get(&link) {
                        let welcome = Welcome {
                            verdict: UNREACHABLE,
                            session: 0,
                            fences: false,
                            seats: None,
                        };
                        // Gone: it needs not know.
                        let channel = &local.channel;
                        let _told = channel.answer(false, None, None, &welcome.encode());
                    }
                }
                ControlMessage::Name { nic, part, text } => {
                    self.noted &= !self.names.hear(nic, part, text);
                }
                // For uplinks.
                ControlMessage::Member { .. } => {}
            }
        }
        Ok(moved)
    }

    /// What an endpoint needs to reach the heap of a peer, where the host says that it may.
    fn seats(&self, peer: Option<u32>) -> Option<Seats> {
        let own = self.place;
        peer.map(|peer| Seats { own, peer })
    }
}

fn broken(fault: Fault) -> Error {
    Error::Join(format!("the host's trunk is broken: {fault}"))
}

#[allow(clippy::cast_possible_truncation, reason = "picking half of a word")]
fn low(token: Token) -> u32 {
    token as u32
}

pub(super) fn answer(link: LinkId, verdict: u32, session: u64) -> ControlMessage {
    ControlMessage::Answer {
        link,
        window: 0,
        verdict,
        session,
        seat: None,
    }
}
