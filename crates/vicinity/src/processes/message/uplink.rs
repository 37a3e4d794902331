//! The message plane's uplink to other hosts, as a process of the supervisor.
//!
//! The supervisor sends it the socket on the interface, which this process could not open itself. The process is
//! confined like a data plane before it reads a frame.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use message::remote::uplink::{self, NamedNic, Options};
use mxoe::Port;
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::ProcessKind;
use switch::control::ControlSocket;

use super::protocol::{Event, Order, keep_running};
use crate::message_uplink::{UPLINK, share};
use crate::processes::start::{ProcessError, log_missing_stages, set_up, take_control_socket};
use crate::runtime_paths::member_socket;

/// Serves the uplink that the supervisor describes.
pub(crate) fn run(runtime_dir: &Path) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    set_up("message-uplink").map_err(ProcessError::System)?;
    rustix::param::page_size();
    let options = options(&control, runtime_dir)?;
    // Connects to the host, and asks what the kernel can do, before the sandbox forbids it.
    let mut uplink = uplink::Uplink::join(options).map_err(ProcessError::Messages)?;
    uplink.watch(&control).map_err(ProcessError::Messages)?;
    let _result = window::doorbell::register_membarrier();
    let missing = sandbox::enter_process().into_iter();
    log_missing_stages(missing.chain(sandbox::enter_thread(ProcessKind::Uplink)));
    let mut reported = ReportedCounters::default();
    // Each opening of an endpoint on the wire has a random number (getrandom); a read of a socket detects a closed
    // peer (recvfrom); the uplink yields the processor while it finds no work, and sleeps without new descriptors
    // (sched_yield, epoll_pwait2); and it answers health checks and reports its counters (recvmsg, sendmsg).
    // syscalls: getrandom recvfrom sched_yield epoll_pwait2 recvmsg sendmsg
    let served = uplink.run(|uplink| {
        reported.report(uplink, &control);
        keep_running(&control)
    });
    served.map_err(ProcessError::Messages)
}

/// Shortest time between two reports of the counters to the supervisor.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The counters that were last sent to the supervisor, and when.
#[derive(Default)]
struct ReportedCounters {
    counters: uplink::Counters,
    at: Option<Instant>,
}

impl ReportedCounters {
    /// Sends the uplink's counters, if they have changed and a second has passed.
    fn report(&mut self, uplink: &mut uplink::Uplink, control: &ControlSocket) {
        let now = Instant::now();
        if self.at.is_some_and(|at| now - at < REPORT_PERIOD) {
            return;
        }
        self.at = Some(now);
        let counters = uplink.counters().ok();
        let Some(counters) = counters.filter(|counters| *counters != self.counters) else {
            return;
        };
        // If the socket is full, the next call sends them. The caller notices the end of the supervisor.
        let event = Event::Uplink(counters.into());
        if control.send(&event, None).is_ok() {
            self.counters = counters;
        }
    }
}

/// Receives the interface and the members from the supervisor.
fn options(control: &ControlSocket, runtime_dir: &Path) -> Result<Options, ProcessError> {
    let mut members = Vec::new();
    loop {
        match next_order(control).map_err(ProcessError::System)? {
            (Order::NamedNic { nic, name }, _) => members.push(NamedNic { nic, name }),
            (
                Order::Uplink {
                    peer_timeout,
                    shared,
                },
                Some(port),
            ) => {
                let share = |interface| share(runtime_dir, interface, &members);
                let shared = shared.as_deref().map(share).transpose();
                return Ok(Options {
                    socket: member_socket(runtime_dir, UPLINK),
                    port: Some(Port::adopt(port).map_err(ProcessError::System)?),
                    datagrams: None,
                    peer_timeout,
                    shared: shared.map_err(ProcessError::Messages)?,
                    members,
                });
            }
            _ => return Err(ProcessError::System(io::ErrorKind::InvalidData.into())),
        }
    }
}

/// Waits for the supervisor's next order.
fn next_order(control: &ControlSocket) -> io::Result<(Order, Option<OwnedFd>)> {
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        match control.receive::<Order>() {
            Ok(Some(order)) => return Ok(order),
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
