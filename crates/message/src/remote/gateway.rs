//! The gateway: connects the endpoints of a board with those of other members, through the host.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use window::Side;
use window::attach::{Channel, Listener};
use window::cached::LoadTime;
use window::pci::Interrupts;
use window::region::{MemberPage, Region};
use window::waiter::{Token, WaitResult, Waiter};

use super::control_channel::ControlChannel;
use super::control_message::{ControlMessage, LinkId, OtherEnd};
use super::directory;
use super::limits::BURST;
use super::local_link::{LOCAL_LINK, LocalLink};
use super::names::Names;
use super::poll_backoff::PollBackoff;
use super::transport::{HostDoorbell, Transport, join_broker, open_transport};
use crate::address::{Board, GATEWAY};
use crate::error::Error;
use crate::handshake::{Hello, HelloReply, MemberPair, UNREACHABLE};
use crate::peer::Fault;

#[cfg(test)]
mod tests;

/// The gateway of a board.
#[derive(Debug)]
pub struct Gateway {
    pub(super) board: Board,
    pub(super) listener: Listener,
    pub(super) waiter: Waiter,
    pub(super) region: Region,
    page: MemberPage,
    /// The number of the member in the region.
    pub(super) member: u32,
    /// The number of the last request to join.
    join_number: u32,
    doorbell: HostDoorbell,
    pub(super) control: ControlChannel,
    /// Accepted connections without an offer.
    pub(super) incoming: BTreeMap<u32, Channel>,
    pub(super) local_links: HashMap<LinkId, LocalLink>,
    pub(super) next: u32,
    /// The interrupts that wake the gateway in a VM.
    interrupts: Option<Interrupts>,
    backoff: PollBackoff,
    /// The names that the uplink reported, and whether the board's directory is up to date.
    names: Names,
    directory_current: bool,
    /// When the directory was last written.
    directory_written: Option<Instant>,
}

/// The shortest time between two writes of the board's directory: other hosts determine how often
/// names change.
const WRITE: Duration = Duration::from_secs(1);

const LISTENER: Token = 0;
const HOST: Token = 1;
const OTHER: Token = 2;
const INTERRUPT: Token = 3;

impl Gateway {
    /// Joins the message plane with the NIC id that the host assigned, for the board in `folder`.
    ///
    /// # Errors
    /// There is no device or socket, the host does not answer, or the board has a gateway already.
    pub fn join(folder: &Path, transport: &Transport) -> Result<Self, Error> {
        Self::join_for(transport, |nic| {
            let board = Board::claim(folder, nic)?;
            board.admit_to_heap()?;
            Ok(board)
        })
    }

    /// The same for the board that `claim` returns for this NIC id.
    pub(super) fn join_for(
        transport: &Transport,
        claim: impl FnOnce(u64) -> io::Result<Board>,
    ) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (doorbell, region, id) = open_transport(transport)?;
        if let HostDoorbell::Client(client) = &doorbell {
            waiter.add(client, HOST)?;
        }
        let member = u32::from(id).saturating_sub(1);
        let page = region.page(member);
        let no_page = || {
            Error::Join(
                "the host assigned no member of the region: use the same release on both sides"
                    .to_owned(),
            )
        };
        let page = page.ok_or_else(no_page)?;
        // This comes before the request to join. So a process that sees that this board has joined
        // finds the gateway's socket, and a second gateway of the board fails before it disturbs
        // the first.
        let board = claim(page.nic())?;
        let folder = board.gateway_folder();
        let listener = match Listener::bind(&folder.join(GATEWAY)) {
            Err(Errno::ADDRINUSE) => {
                let text = format!(
                    "{} has a gateway already: end that one first",
                    folder.display()
                );
                return Err(Error::Join(text));
            }
            other => other?,
        };
        board.admit_clients(&folder.join(GATEWAY))?;
        directory::clear(folder)?;
        waiter.add(&listener, LISTENER)?;
        let join_number = join_broker(&page, &doorbell)?;
        let control = region.control_window(member).ok_or_else(no_page)?;
        let control = ControlChannel::new(control.ends(Side::Attacher)?);
        let interrupts = doorbell.interrupts()?;
        if let Some(interrupts) = &interrupts {
            waiter.add(interrupts, INTERRUPT)?;
        }
        page.set_interruptible(interrupts.is_some());
        let polling_only = matches!(doorbell, HostDoorbell::Device(..)) && interrupts.is_none();
        page.set_polling(polling_only);
        Ok(Self {
            board,
            listener,
            waiter,
            region,
            page,
            member,
            join_number,
            doorbell,
            control,
            incoming: BTreeMap::new(),
            local_links: HashMap::new(),
            next: 0,
            interrupts,
            backoff: PollBackoff::new(polling_only),
            names: Names::default(),
            directory_current: true,
            directory_written: None,
        })
    }

    /// Returns the NIC id of the board.
    #[must_use]
    pub fn nic(&self) -> u64 {
        self.board.nic()
    }

    /// Returns whether the host can wake the gateway at any time. Otherwise it polls.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        !self.backoff.polling_only
    }

    /// Returns what a load from the region takes in this VM, or `None` on the host, whose memory is always cached.
    #[must_use]
    pub fn load_time(&self) -> Option<LoadTime> {
        self.doorbell.load_time()
    }

    /// Makes [`run`](Self::run) call `go_on` also when this descriptor is readable.
    ///
    /// # Errors
    /// There is no memory left, or epoll does not support the descriptor.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// Runs until `go_on`, called at least once a second, returns false.
    ///
    /// # Errors
    /// The host has ended, or has ended this gateway's membership.
    pub fn run(&mut self, go_on: impl Fn() -> bool) -> Result<(), Error> {
        while go_on() {
            let moved = self.poll_host()?;
            let pause = match self.control.has_message() {
                true => Duration::ZERO,
                false => self.backoff.next(moved),
            };
            let woken = self.waiter.wait(Some(pause))?;
            self.handle_events(&woken)?;
        }
        Ok(())
    }

    /// Handles what is there, without waiting.
    pub(super) fn turn(&mut self) -> Result<(), Error> {
        let woken = self.waiter.wait(Some(Duration::ZERO))?;
        self.handle_events(&woken)?;
        self.poll_host().map(drop)
    }

    /// Returns whether no endpoint has a link.
    pub(super) fn is_idle(&self) -> bool {
        self.local_links.is_empty()
    }

    /// Sends a heartbeat, handles messages of the host, and sends what is queued: the gateway may
    /// sleep next. Returns whether there were messages.
    fn poll_host(&mut self) -> Result<bool, Error> {
        self.page.send_heartbeat();
        if self.page.joined_number() != self.join_number {
            return Err(Error::Join("the host has ended this gateway".to_owned()));
        }
        let moved = self.handle_host_messages().map_err(broken)?;
        if !self.directory_current
            && self
                .directory_written
                .is_none_or(|at| at.elapsed() >= WRITE)
        {
            (self.directory_current, self.directory_written) = (true, Some(Instant::now()));
            // A failed write affects names only, not messages.
            let admit = |file: &Path| self.board.admit_readers(file);
            let folder = self.board.gateway_folder();
            let _result = directory::write(folder, self.names.named_nics(), admit);
        }
        self.control.flush().map_err(broken)?;
        if std::mem::take(&mut self.control.published) {
            self.doorbell.ring();
        }
        Ok(moved)
    }

    /// Handles the events of the sockets.
    fn handle_events(&mut self, woken: &WaitResult) -> Result<(), Error> {
        for &token in &woken.tokens {
            let result = match token {
                LISTENER => self.accept(),
                OTHER => Ok(()),
                INTERRUPT => {
                    self.interrupts.iter().for_each(Interrupts::clear);
                    Ok(())
                }
                HOST => match &self.doorbell {
                    HostDoorbell::Client(client) if !client.take_wakeups() => {
                        return Err(Error::Join("the host is gone".to_owned()));
                    }
                    _ => Ok(()),
                },
                token if token >= LOCAL_LINK => self.handle_local(low(token)),
                token => self.handle_incoming(low(token)),
            };
            result.map_err(broken)?;
        }
        self.backoff.had_event |= !woken.tokens.is_empty();
        Ok(())
    }

    /// Handles messages of the host; returns whether there were any.
    fn handle_host_messages(&mut self) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..BURST {
            let Some(message) = self.control.receive()? else {
                break;
            };
            moved = true;
            match message {
                ControlMessage::Connect {
                    link,
                    window,
                    hello,
                    other_end,
                } => {
                    let hello = Hello {
                        members: self.members(other_end),
                        other_host: other_end == OtherEnd::OtherHost,
                        ..hello
                    };
                    if let Err(verdict) = self.offer(link, window, &hello) {
                        self.control.send(ControlMessage::refusal(link, verdict))?;
                    }
                }
                ControlMessage::Answer {
                    link,
                    window,
                    verdict,
                    session,
                    other_end,
                    program,
                } => {
                    let reply = HelloReply {
                        verdict,
                        session,
                        fences: false,
                        process_memory: false,
                        other_host: other_end == OtherEnd::OtherHost,
                        program,
                        members: self.members(other_end),
                    };
                    self.answered(link, window, reply)?;
                }
                ControlMessage::Ring { link } => {
                    if let Some(local) = self.local_links.get(&link) {
                        local.channel.ring();
                    }
                }
                ControlMessage::Close { link } => self.close(link)?,
                ControlMessage::Lost { link } => {
                    if let Some(local) = self.local_links.get(&link) {
                        let reply = HelloReply {
                            verdict: UNREACHABLE,
                            session: 0,
                            fences: false,
                            process_memory: false,
                            other_host: false,
                            program: None,
                            members: None,
                        };
                        // If the endpoint has closed its socket, it needs no answer.
                        let channel = &local.channel;
                        let _result = channel.answer(false, None, None, &reply.encode());
                    }
                }
                ControlMessage::Name { nic, part, text } => {
                    self.directory_current &= !self.names.update(nic, part, text);
                }
                // Only for uplinks.
                ControlMessage::Member { .. } => {}
            }
        }
        Ok(moved)
    }

    /// Returns what an endpoint needs to access the heap of its peer's member, if the host permits
    /// that.
    fn members(&self, other_end: OtherEnd) -> Option<MemberPair> {
        match other_end {
            OtherEnd::InRegion(peer) => Some(MemberPair {
                own: self.member,
                peer,
            }),
            OtherEnd::Mediated | OtherEnd::OtherHost => None,
        }
    }
}

impl Drop for Gateway {
    /// Leaves, unless another gateway of this member has asked to join meanwhile.
    fn drop(&mut self) {
        if self.page.join_number() == self.join_number {
            self.page.request_join(0);
            self.doorbell.ring();
        }
    }
}

fn broken(fault: Fault) -> Error {
    Error::Join(format!("the host's control channel is broken: {fault}"))
}

#[allow(clippy::cast_possible_truncation, reason = "picking half of a word")]
fn low(token: Token) -> u32 {
    token as u32
}
