//! The host: who is there, and which link is whose.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use window::Side;
use window::ivshmem::{Doorbell, Server};
use window::region::Region;
use window::waiter::{Token, Waiter};

use super::note::{FROM_MEMBER, LinkId, Note};
use super::relay::Relay;
use super::seat::Seat;
use super::trunk::Trunk;
use super::{BURST, LEGS, LINKS, SILENCE, region_layout};
use crate::address::Board;
use crate::greeting::{ACCEPTED, CLOSED, FULL, Hello};
use crate::status::Error;
use window::doorbell;

/// Who may take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name: the VM's.
    pub name: String,
    /// Its trust group, if it has one. Members of a group share memory.
    pub group: Option<String>,
}

/// Joins the gateways of a host.
#[derive(Debug)]
pub struct Switchboard {
    halls: Vec<Hall>,
    seats: Vec<Seat>,
    links: HashMap<u64, Link>,
    next: u64,
    doorbell: Doorbell,
    waiter: Waiter,
    /// Seats whose gateway broke the protocol.
    faulty: Vec<usize>,
    /// When a relay last moved something.
    moved: Option<Instant>,
}

/// A region, and which of its links are free.
#[derive(Debug)]
struct Hall {
    group: Option<String>,
    region: Region,
    free: Vec<u32>,
}

/// What joins two endpoints.
#[derive(Debug)]
struct Link {
    ends: [End; 2],
    /// None when both have the same window.
    relay: Option<Relay>,
    up: bool,
    /// This end is closed, and the other is told when it has been sent the rest.
    draining: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    seat: usize,
    id: LinkId,
    window: u32,
    closed: bool,
    /// Its gateway ended before it, so somebody may still use the window.
    stale: bool,
}

const DOORBELL: Token = 0;
const SERVER: Token = 1 << 32;
const MEMBER: Token = 2 << 32;

/// How long the switchboard looks on after it moved something.
const SPIN: Duration = Duration::from_micros(50);

/// Between two looks at the clock.
const ROUNDS: u32 = 32;

/// How often beats are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Switchboard {
    /// Open one for these members. Each has a socket `NAME.sock` in `folder`, which is made.
    ///
    /// # Errors
    /// Two names give one NIC id, a group is too large, or the kernel refuses.
    pub fn new(folder: &Path, members: &[Member]) -> Result<Self, Error> {
        std::fs::create_dir_all(folder)?;
        let doorbell = Doorbell::new()?;
        let waiter = Waiter::new()?;
        waiter.add_shared(&doorbell, DOORBELL)?;
        let mut board = Self {
            halls: Vec::new(),
            seats: Vec::new(),
            links: HashMap::new(),
            next: 0,
            doorbell,
            waiter,
            faulty: Vec::new(),
            moved: None,
        };
        for member in members {
            board.add(folder, member, members)?;
        }
        Ok(board)
    }

    fn add(&mut self, folder: &Path, member: &Member, all: &[Member]) -> Result<(), Error> {
        let nic = Board::nic_of(&member.name);
        if self.seats.iter().any(|seat| seat.nic == nic) {
            let text = format!("`{}` has the same NIC id as another member", member.name);
            return Err(Error::Join(text));
        }
        let same = |hall: &Hall| hall.group.is_some() && hall.group == member.group;
        let hall = match self.halls.iter().position(same) {
            Some(hall) => hall,
            None => {
                let group = &member.group;
                let of_group = all.iter().filter(|other| other.group == *group).count();
                let seats = if group.is_some() { of_group } else { 1 };
                let layout = region_layout(u32::try_from(seats).unwrap_or(u32::MAX))?;
                self.halls.push(Hall {
                    group: group.clone(),
                    region: Region::create(layout)?,
                    free: (0..LINKS).rev().collect(),
                });
                self.halls.len() - 1
            }
        };
        let place = self.seats.iter().filter(|seat| seat.hall == hall).count();
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let words = self
            .halls
            .get(hall)
            .and_then(|hall| hall.region.seat(place));
        let words = words.ok_or_else(|| Error::Join("a group is too large".to_owned()))?;
        words.set_nic(nic);
        let id = u16::try_from(place + 1).unwrap_or(u16::MAX);
        let server = Server::bind(&folder.join(format!("{}.sock", member.name)), id)?;
        self.waiter.add(&server, SERVER | self.seats.len() as u64)?;
        self.seats.push(Seat::new(nic, hall, place, words, server));
        Ok(())
    }

    /// Work until `go_on`, asked at least once a second, says no.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn serve(&mut self, go_on: impl Fn() -> bool) -> Result<(), Error> {
        let mut looked = Instant::now();
        while go_on() {
            self.spin();
            self.sleep()?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.bury(looked);
            }
        }
        Ok(())
    }

    /// Work, and look on for a while if there are relays that were busy just now.
    fn spin(&mut self) {
        loop {
            for _ in 0..ROUNDS {
                self.turn();
            }
            let busy = self.moved.is_some_and(|moved| moved.elapsed() < SPIN);
            if !busy {
                return;
            }
        }
    }

    /// Tell the relays' ends, look once more, then sleep.
    fn sleep(&mut self) -> Result<(), Error> {
        let mut relays: Vec<_> = self
            .links
            .values_mut()
            .filter_map(|l| l.relay.as_mut())
            .collect();
        relays.iter_mut().for_each(|relay| relay.doze());
        // Members are on other kernels, or take part as if they were: they have a fence each.
        let _told = doorbell::settle();
        let work = relays.iter_mut().any(|relay| relay.has_work());
        let limit = if work { Duration::ZERO } else { LOOK };
        let woken = self.waiter.wait(Some(limit))?;
        relays.iter_mut().for_each(|relay| relay.rise());
        for &token in &woken.tokens {
            let seat = usize::try_from(token & 0xffff_ffff).unwrap_or(usize::MAX);
            match token {
                DOORBELL => {}
                token if token >= MEMBER => self.hear_member(seat),
                _ => self.accept(seat),
            }
        }
        Ok(())
    }

    /// A VM starts, or a process of the host.
    fn accept(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(hall) = self.halls.get(seat.hall) else {
            return;
        };
        use std::os::fd::AsFd;
        let accepted = seat.server.accept(hall.region.as_fd(), &self.doorbell);
        let Ok(Some(member)) = accepted else {
            return;
        };
        // One at a time: a second QEMU of this name is turned away.
        if seat.member.is_some() || self.waiter.add(&member, MEMBER | number as u64).is_err() {
            return;
        }
        seat.member = Some(member);
    }

    fn hear_member(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(member) = &mut seat.member else {
            return;
        };
        if member.hear() {
            return;
        }
        self.waiter.remove(&*member);
        seat.member = None;
        self.leave(number, false);
        // With the VM, everything is gone that could use its windows.
        if let Some(seat) = self.seats.get_mut(number) {
            let parked = std::mem::take(&mut seat.parked);
            if let Some(hall) = self.halls.get_mut(seat.hall) {
                hall.free.extend(parked);
            }
            seat.words.open(0);
            seat.opened = 0;
        }
    }

    /// End gateways that are silent.
    fn bury(&mut self, now: Instant) {
        for number in 0..self.seats.len() {
            let silent = self
                .seats
                .get_mut(number)
                .is_some_and(|seat| seat.is_silent(now, SILENCE));
            if silent {
                self.leave(number, true);
            }
        }
    }

    /// One round over everybody.
    fn turn(&mut self) {
        for number in 0..self.seats.len() {
            self.greet(number);
            for _ in 0..BURST {
                let Some(trunk) = self
                    .seats
                    .get_mut(number)
                    .and_then(|seat| seat.trunk.as_mut())
                else {
                    break;
                };
                match trunk.hear() {
                    Ok(Some(note)) => self.hear(number, note),
                    Ok(None) => break,
                    Err(_) => {
                        self.faulty.push(number);
                        break;
                    }
                }
            }
        }
        self.relay();
        while let Some(number) = self.faulty.pop() {
            self.leave(number, true);
        }
        for seat in &mut self.seats {
            seat.wake();
        }
    }

    /// A gateway begins, or begins again.
    fn greet(&mut self, number: usize) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let opened = seat.words.opened();
        if opened == seat.opened || seat.member.is_none() {
            return;
        }
        seat.opened = opened;
        self.leave(number, true);
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        let Some(hall) = self.halls.get(seat.hall).filter(|_| opened != 0) else {
            return;
        };
        let window = hall.region.trunk(seat.place);
        let ends = window.and_then(|window| {
            window.renew()?;
            window.ends(Side::Creator)
        });
        if let Ok(ends) = ends {
            seat.begin(Trunk::new(ends), opened);
        }
    }

    fn hear(&mut self, number: usize, note: Note) {
        let done = match note {
            Note::Connect { link, hello, .. } => self.connect(number, link, hello),
            Note::Answer {
                link,
                verdict,
                session,
                ..
            } => self.answer(number, link, verdict, session),
            Note::Ring { link } => {
                if let Some((other, id)) = self.direct(number, link) {
                    self.say(other, Note::Ring { link: id });
                }
                Some(())
            }
            Note::Close { link } => {
                let leg = self.seats.get(number).and_then(|seat| seat.legs.get(&link));
                // Both ends may close at the same time.
                if let Some(&(link, side)) = leg {
                    self.close(link, side, false);
                }
                Some(())
            }
        };
        if done.is_none() {
            self.faulty.push(number);
        }
    }

    /// The other end of a direct link.
    fn direct(&self, number: usize, link: LinkId) -> Option<(usize, LinkId)> {
        let &(link, side) = self.seats.get(number)?.legs.get(&link)?;
        let link = self.links.get(&link).filter(|link| link.relay.is_none())?;
        let end = link.ends.get(1 - side)?;
        Some((end.seat, end.id))
    }

    /// An endpoint wants to connect; `None` when its gateway makes no sense.
    fn connect(&mut self, number: usize, id: LinkId, hello: Hello) -> Option<()> {
        let seat = self.seats.get(number)?;
        if id & FROM_MEMBER == 0 || seat.legs.contains_key(&id) {
            return None;
        }
        let full = seat.legs.len() >= LEGS;
        let is = |seat: &Seat| seat.nic == hello.to.nic && seat.trunk.is_some();
        let target = self
            .seats
            .iter()
            .position(is)
            .filter(|target| *target != number);
        let made = match target {
            None => Err(CLOSED),
            Some(_) if full => Err(FULL),
            Some(target) => self.join(number, id, target, hello).ok_or(FULL),
        };
        if let Err(verdict) = made {
            let note = Note::Answer {
                link: id,
                window: 0,
                verdict,
                session: 0,
            };
            self.say(number, note);
        }
        Some(())
    }

    /// Give two members a link; `None` when there is no room.
    fn join(&mut self, from: usize, id: LinkId, to: usize, mut hello: Hello) -> Option<()> {
        let halls = [self.seats.get(from)?.hall, self.seats.get(to)?.hall];
        let [near, far] = halls;
        let first = self.halls.get_mut(near)?.free.pop()?;
        let second = match near == far {
            true => Some(first),
            false => self.halls.get_mut(far)?.free.pop(),
        };
        let Some(second) = second else {
            self.halls.get_mut(near)?.free.push(first);
            return None;
        };
        let ready = [(near, first), (far, second)].iter().all(|(hall, window)| {
            let hall = self.halls.get(*hall);
            let window = hall.and_then(|hall| hall.region.link(*window).ok());
            window.is_some_and(|window| window.renew().is_ok())
        });
        self.next += 1;
        let number = self.next;
        let origin = self.seats.get_mut(from)?;
        origin.legs.insert(id, (number, 0));
        // A guest never chooses what it is called.
        hello.from.nic = origin.nic;
        let target = self.seats.get_mut(to)?;
        let other = target.number();
        target.legs.insert(other, (number, 1));
        let end = |seat, id, window| End {
            seat,
            id,
            window,
            closed: false,
            stale: false,
        };
        let link = Link {
            ends: [end(from, id, first), end(to, other, second)],
            relay: None,
            up: false,
            draining: false,
        };
        self.links.insert(number, link);
        if !ready {
            self.discard(number);
            return None;
        }
        let note = Note::Connect {
            link: other,
            window: second,
            hello,
        };
        self.say(to, note);
        Some(())
    }

    /// An endpoint agreed to a link, or not; `None` when its gateway makes no sense.
    fn answer(&mut self, number: usize, id: LinkId, verdict: u32, session: u64) -> Option<()> {
        let Some(&(key, side)) = self.seats.get(number)?.legs.get(&id) else {
            // The other end is gone since.
            return Some(());
        };
        let link = self.links.get_mut(&key)?;
        if side != 1 || link.up {
            return None;
        }
        let [origin, target] = link.ends;
        if verdict == ACCEPTED && !origin.closed {
            let halls = [
                self.seats.get(origin.seat)?.hall,
                self.seats.get(number)?.hall,
            ];
            if halls[0] != halls[1] {
                let window = |hall: usize, window| self.halls.get(hall)?.region.link(window).ok();
                let near = window(halls[0], origin.window)?.ends(Side::Guest).ok()?;
                let far = window(halls[1], target.window)?.ends(Side::Creator).ok()?;
                link.relay = Some(Relay::new([near, far]));
            }
            link.up = true;
        }
        let up = link.up;
        if !origin.closed {
            let note = Note::Answer {
                link: origin.id,
                window: origin.window,
                verdict,
                session,
            };
            self.say(origin.seat, note);
        }
        if !up && verdict != ACCEPTED {
            self.discard(key);
        }
        Some(())
    }

    /// Move what is in mediated links.
    fn relay(&mut self) {
        let mut rings = Vec::new();
        let mut broken = Vec::new();
        let mut drained = Vec::new();
        for (&key, link) in &mut self.links {
            let Some(relay) = &mut link.relay else {
                continue;
            };
            match relay.turn() {
                Ok(turn) => {
                    if turn.moved {
                        self.moved = Some(Instant::now());
                    }
                    let due = link.ends.iter().zip(turn.rings).filter(|(_, ring)| *ring);
                    rings.extend(due.map(|(end, _)| (end.seat, end.id)));
                    let closed = link.ends.iter().position(|end| end.closed);
                    if closed.is_some_and(|side| link.draining && relay.is_drained(side)) {
                        drained.push(key);
                    }
                }
                Err(_) => broken.push(key),
            }
        }
        for (seat, link) in rings {
            self.say(seat, Note::Ring { link });
        }
        // Only the link ends: it was one endpoint, not all of its member's.
        for key in broken.into_iter().chain(drained) {
            self.finish(key);
        }
    }

    /// Nothing more goes over a link: tell both ends.
    fn finish(&mut self, key: u64) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        link.relay = None;
        link.draining = false;
        for end in link.ends {
            if !end.closed {
                self.say(end.seat, Note::Close { link: end.id });
            }
        }
    }

    /// An end of a link is closed.
    fn close(&mut self, key: u64, side: usize, stale: bool) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        let Some(end) = link.ends.get_mut(side) else {
            return;
        };
        end.closed = true;
        end.stale = stale;
        let id = end.id;
        if let Some(seat) = self.seats.get_mut(end.seat) {
            seat.legs.remove(&id);
        }
        if link.ends.iter().all(|end| end.closed) {
            self.discard(key);
        } else if link.relay.is_some() {
            link.draining = true;
        } else {
            self.finish(key);
        }
    }

    /// A link is no more.
    fn discard(&mut self, key: u64) {
        let Some(link) = self.links.remove(&key) else {
            return;
        };
        let mut given = None;
        for end in link.ends {
            let Some(seat) = self.seats.get_mut(end.seat) else {
                continue;
            };
            seat.legs.remove(&end.id);
            let stale = link.ends.iter().find(|end| end.stale);
            // A window that both have goes back once.
            let window = (seat.hall, end.window);
            if given == Some(window) {
                continue;
            }
            given = Some(window);
            let (hall, keeper) = (seat.hall, stale.map(|end| end.seat));
            let keeper = keeper.and_then(|keeper| self.seats.get_mut(keeper));
            match keeper.filter(|keeper| keeper.hall == hall) {
                Some(keeper) => keeper.parked.push(end.window),
                None => {
                    if let Some(hall) = self.halls.get_mut(hall) {
                        hall.free.push(end.window);
                    }
                }
            }
        }
    }

    /// A gateway is no more, or begins anew.
    fn leave(&mut self, number: usize, stale: bool) {
        let Some(seat) = self.seats.get_mut(number) else {
            return;
        };
        seat.end();
        let legs: Vec<_> = seat.legs.values().copied().collect();
        for (link, side) in legs {
            self.close(link, side, stale);
        }
    }

    fn say(&mut self, number: usize, note: Note) {
        let trunk = self
            .seats
            .get_mut(number)
            .and_then(|seat| seat.trunk.as_mut());
        if trunk.is_some_and(|trunk| trunk.say(note).is_err()) {
            self.faulty.push(number);
        }
    }
}
