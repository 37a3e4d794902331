//! A process of the sockets plane. The supervisor ([`crate::serve`]) starts it with a control socket as standard input.
//! The process serves the socket devices of some VMs until the supervisor sends the order to stop, or is gone.
//!
//! The supervisor keeps the front-ends' sockets and the settings of their devices, because QEMU does not connect
//! again. So this process must not shut these sockets down when it fails: it aborts.

pub(crate) mod protocol;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use sandbox::ProcessKind;
use switch::control::ControlSocket;
use vhost::handover::StoredSetting;
use vsock::connection_list::ConnectionList;
use vsock::guest::GuestConfig;
use vsock::plane::Plane;

use self::protocol::{Event, Order};
use super::start::{ProcessError, log_missing_stages, set_up, take_control_socket};

/// Serves VMs of which the first has this name.
pub(crate) fn run(vm: &str) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    let _span = tracing::error_span!("vsock", vm = vm).entered();
    set_up(&format!("vsock-{vm}")).map_err(ProcessError::System)?;
    abort_on_panic();
    vhost::sigbus::install().map_err(ProcessError::System)?;
    vhost::fd_kind::prepare().map_err(|error| ProcessError::System(error.into()))?;
    rustix::param::page_size();
    let mut server = take_parts(control).map_err(ProcessError::System)?;
    log_missing_stages(sandbox::enter_process());
    vhost::reclaim::start(confine).map_err(ProcessError::System)?;
    confine();
    server.run().map_err(ProcessError::Serving)
}

/// Confines a thread of this process.
fn confine() {
    log_missing_stages(sandbox::enter_thread(ProcessKind::Vsock));
}

/// Makes a panic end the process at once: unwinding would shut the front-ends' sockets down.
fn abort_on_panic() {
    let log = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log(panic);
        std::process::abort();
    }));
}

/// Receives the guests from the supervisor.
fn take_parts(control: ControlSocket) -> io::Result<Server> {
    let mut guests = Vec::new();
    loop {
        poll(&mut [PollFd::new(&control, PollFlags::IN)], None)?;
        let order = match control.receive::<Order>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            order => order?,
        };
        match order {
            Some((Order::Guest { name, cid, rules }, _)) => {
                guests.push(GuestConfig { name, cid, rules });
            }
            Some((Order::Begin, Some(memory))) => {
                let list = ConnectionList::take(memory.as_fd()).map_err(io::Error::other)?;
                let stored = guests.iter().map(|_| Vec::new()).collect();
                let plane = Plane::new(guests, list)?;
                plane.watch_control(control.as_fd())?;
                return Ok(Server {
                    control,
                    plane,
                    stored,
                    outbox: VecDeque::new(),
                    waits_for_room: false,
                });
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The device and its supervisor.
struct Server {
    control: ControlSocket,
    plane: Plane,
    /// The settings of each guest that has no front-end yet.
    stored: Vec<Vec<StoredSetting>>,
    /// Events that wait for room in the control socket. Bounded: the device reads no front-end's message while
    /// events of one wait, and the supervisor requests one report at a time.
    outbox: VecDeque<(Event, Option<OwnedFd>)>,
    /// The device wakes up when the control socket has room.
    waits_for_room: bool,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        let mut has_work = true;
        loop {
            if self.plane.wait(has_work)? && !self.handle_orders()? {
                return Ok(());
            }
            has_work = self.plane.work();
            has_work |= self.send_events()?;
        }
    }

    /// Sends all events, as far as there is room, and lets the device continue once all are sent. Returns whether it
    /// has more to do now.
    fn send_events(&mut self) -> io::Result<bool> {
        while let Some((event, descriptor)) = self.plane.next_event() {
            self.outbox.push_back((Event::Device(event), descriptor));
        }
        // The device reads no message while events wait, so it has more to do once they are sent.
        let mut has_work = false;
        while let Some((event, fd)) = self.outbox.front() {
            match self.control.send(event, fd.as_ref().map(AsFd::as_fd)) {
                Ok(()) => {
                    has_work = true;
                    drop(self.outbox.pop_front());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let waits = !self.outbox.is_empty();
        if waits != self.waits_for_room {
            self.plane.watch_room(self.control.as_fd(), waits)?;
            self.waits_for_room = waits;
        }
        has_work |= !waits && self.plane.execute_pending();
        Ok(has_work)
    }

    /// Carries out all orders that wait. Returns false if the process must end.
    fn handle_orders(&mut self) -> io::Result<bool> {
        loop {
            let order = match self.control.receive::<Order>() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                order => order?,
            };
            match order {
                Some((
                    Order::Setting {
                        guest,
                        key,
                        payload,
                    },
                    descriptor,
                )) => {
                    if let Some(stored) = self.stored.get_mut(guest) {
                        stored.push(StoredSetting {
                            key,
                            payload,
                            descriptor,
                        });
                    }
                }
                Some((Order::Attach { guest }, Some(socket))) => {
                    let stored = self.stored.get_mut(guest).map(std::mem::take);
                    self.plane.attach(guest, socket, stored.unwrap_or_default());
                }
                Some((Order::Listen { guest }, Some(listener))) => {
                    self.plane.listen(guest, listener)?;
                }
                Some((Order::Connected { request }, socket)) => {
                    self.plane.connected(request, socket);
                }
                Some((Order::Report, _)) => {
                    for guest in 0..self.stored.len() {
                        let figures = self.plane.figures(guest);
                        self.outbox
                            .push_back((Event::Figures { guest, figures }, None));
                    }
                    self.outbox.push_back((Event::End, None));
                }
                _ => return Ok(false),
            }
        }
    }
}
