//! The process of a VM's space. The supervisor ([`crate::serve`]) starts it with a control socket as standard input.
//! The process serves the VM and the clients until the supervisor sends the order to stop, or is gone.
//!
//! The supervisor sends it its sockets, and those of connections that it requests. The process reads tokens,
//! certificates and keys before the sandbox forbids it, and then starts its threads; libraries start most of them.

pub(crate) mod protocol;
mod push;
mod token;

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory_plane::access::Access;
use memory_plane::http::{self, Service};
use memory_plane::push::Pusher;
use memory_plane::{SpaceState, serve_vm, tls};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::ProcessKind;
use switch::control::ControlSocket;

use self::protocol::{Event, Order, Size};
use self::push::Connections;
use super::start::{ProcessError, log_missing_stages, set_up, take_control_socket};
use crate::config::{SLOT_BYTES, Space};

/// Pause after a failure to serve the VM.
const PAUSE: Duration = Duration::from_millis(200);

/// Slots that are free for at least this time have their memory released.
const TRIM_PERIOD: Duration = Duration::from_millis(900);

/// Serves the space of this VM.
pub(crate) fn run(vm: &str) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    let _span = tracing::error_span!("space", vm = vm).entered();
    set_up(&format!("space-{vm}")).map_err(ProcessError::System)?;
    abort_on_panic();
    let Parts {
        space,
        size,
        memory,
        vm_socket,
        clients,
    } = take_parts(&control)?;
    let control = Arc::new(control);
    let connections = Connections::new(&control);
    let (state, service) = prepare(&space, size, memory)?;
    vhost::fd_kind::prepare().map_err(|error| ProcessError::System(error.into()))?;
    raise_locked_memory_limit();
    let push = space.push.as_ref();
    let push = push.map(|push| push::prepare(push, &state, &connections));
    let push = push.transpose()?;
    let missing = sandbox::enter_process().into_iter();
    log_missing_stages(missing.chain(sandbox::enter_thread(ProcessKind::Space)));
    let begin = || {
        serve(&space.vm, vm_socket, &state)?;
        if let Some(listener) = clients {
            spawn_runtime("clients", &space.vm, http::serve(service, listener))?;
        }
        if let Some(pusher) = push {
            let push = async { Ok(Pusher::run(pusher).await) };
            spawn_runtime("push", &space.vm, push)?;
        }
        Ok(())
    };
    begin().map_err(ProcessError::System)?;
    handle_orders(&control, &state, &connections).map_err(ProcessError::Serving)
}

/// Makes a panic of any thread end the process. A space without one of its threads would look healthy and not serve;
/// the supervisor starts a process that ended again.
fn abort_on_panic() {
    let log = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log(panic);
        std::process::abort();
    }));
}

/// Raises the limit on locked memory. Zero-copy sends pin memory, and the kernel counts it for all spaces together,
/// because they run as one user. It is never more than the spaces' memory. Beyond the limit, the kernel copies.
fn raise_locked_memory_limit() {
    let now = getrlimit(Resource::Memlock);
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    let most = Rlimit {
        current: now.maximum,
        ..now
    };
    let raised = setrlimit(Resource::Memlock, none).or_else(|_| setrlimit(Resource::Memlock, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit on locked memory; beyond it, the kernel copies instead of \
            sending without a copy");
    }
}

/// Reads the files, and maps the memory, that the space needs.
fn prepare(
    space: &Space,
    size: Size,
    (slot_file, ledger): (File, File),
) -> Result<(Arc<SpaceState>, Service), ProcessError> {
    let state = SpaceState::with(slot_file, ledger, SLOT_BYTES, size.slots, size.most);
    let state = state.map_err(ProcessError::System)?;
    state.resize(size.slots, size.limit);
    state.limit(space.rate);
    let token = space.token_file.as_deref().map(token::read).transpose()?;
    let tls = space.tls.as_ref();
    let tls = tls.map(|(certificate, key)| tls::acceptor(certificate, key));
    let service = Service {
        state: Arc::clone(&state),
        access: Arc::new(Access {
            allow: space.allow.clone(),
            token,
        }),
        tls: tls.transpose().map_err(ProcessError::Tls)?,
    };
    Ok((state, service))
}

/// Serves the VM, in a thread.
fn serve(vm: &str, vm_socket: UnixListener, state: &Arc<SpaceState>) -> io::Result<()> {
    let (vm, state) = (vm.to_owned(), Arc::clone(state));
    let serve = move || {
        let _span = tracing::error_span!("space", vm).entered();
        loop {
            if let Err(error) = serve_vm(&state, &vm_socket) {
                tracing::warn!("the connection to the VM failed: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    };
    // What a thread begins with.
    // syscalls: clone mprotect prctl set_robust_list rseq sched_getaffinity
    // Between attempts.
    // syscalls: clock_nanosleep
    let thread = std::thread::Builder::new().name("vm".to_owned());
    thread.spawn(serve).map(drop)
}

/// Runs work that never ends in a thread with a runtime of its own.
fn spawn_runtime<F>(name: &'static str, vm: &str, work: F) -> io::Result<()>
where
    F: Future<Output = io::Result<Infallible>> + Send + 'static,
{
    let vm = vm.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let run = move || {
        let _span = tracing::error_span!("space", vm).entered();
        let Err(error) = runtime.block_on(work);
        tracing::error!("{name} failed: {error}; the process ends");
        std::process::abort();
    };
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop)
}

/// Carries out the supervisor's orders, until the process must end.
fn handle_orders(
    control: &ControlSocket,
    state: &SpaceState,
    connections: &Connections,
) -> io::Result<()> {
    let mut trimmed = Instant::now();
    loop {
        let order = next(control)?;
        // Orders arrive each second, or a few times a minute if the controller does not size this space; more often
        // while clients ask for the state.
        if trimmed.elapsed() >= TRIM_PERIOD {
            state.trim();
            trimmed = Instant::now();
        }
        let event = match order {
            Some((Order::Report, _)) => Event::Report(state.figures()),
            Some((Order::Window, _)) => Event::Window(state.window()),
            Some((Order::Resize(size), _)) => Event::Sized(state.resize(size.slots, size.limit)),
            Some((Order::Rate(rate), _)) => {
                state.limit(rate);
                continue;
            }
            Some((Order::Connected, Some(stream))) => {
                connections.answer(Ok(stream.into()));
                continue;
            }
            Some((Order::Unreachable(why), _)) => {
                connections.answer(Err(why));
                continue;
            }
            _ => return Ok(()),
        };
        control.send(&event, None)?;
    }
}

type ReceivedOrder = (Order, Option<OwnedFd>);

fn next(control: &ControlSocket) -> io::Result<Option<ReceivedOrder>> {
    loop {
        // syscalls: ppoll
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        // syscalls: recvmsg sendmsg
        match control.receive::<Order>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            order => return order,
        }
    }
}

/// What the supervisor sent.
struct Parts {
    space: Space,
    size: Size,
    /// The slots', and the ledger's.
    memory: (File, File),
    vm_socket: UnixListener,
    clients: Option<TcpListener>,
}

fn take_parts(control: &ControlSocket) -> Result<Parts, ProcessError> {
    let wrong = || ProcessError::System(io::ErrorKind::InvalidData.into());
    let (mut slots, mut ledger, mut clients) = (None, None, None);
    loop {
        match next(control).map_err(ProcessError::System)? {
            Some((Order::Slots, Some(file))) => slots = Some(file.into()),
            Some((Order::Ledger, Some(file))) => ledger = Some(file.into()),
            Some((Order::Clients, Some(listener))) => clients = Some(listener.into()),
            Some((Order::Begin(space, size), Some(vm_socket))) => {
                let vm_socket = UnixListener::from(vm_socket);
                // Only this process accepts on it, and it waits.
                vm_socket
                    .set_nonblocking(false)
                    .map_err(ProcessError::System)?;
                return Ok(Parts {
                    space: *space,
                    size,
                    memory: slots.zip(ledger).ok_or_else(wrong)?,
                    vm_socket,
                    clients,
                });
            }
            _ => return Err(wrong()),
        }
    }
}
