//! `vicinity-agent sockets`: TCP connections of programs as AF_VSOCK connections between VMs of one host.
//!
//! # Theory of operation
//!
//! ```text
//!  host ── directory: the addresses of this host's VMs ──▶ table ──▶ libvicinity-sockets, in clients
//!  peers' agents ── they answer, so their VMs accept ─────────▲
//!
//!  client's VM ── AF_VSOCK ──▶ server ──▶ TCP from the client's address ──▶ accept() of a server
//!                                 └─▶ claim: the server takes the AF_VSOCK connection, or forward: copies the data
//! ```
//!
//! The host says which IPv4 addresses belong to which VM, and to which TCP ports this VM may connect ([`directory`]).
//! The agent writes that into a file which the preload library in client programs maps ([`table`]).
//!
//! For the servers of this VM the agent listens on an AF_VSOCK port for each TCP port that the host allows
//! ([`listeners`]). It connects to the server by TCP, from the client's own address ([`tcp_connect`]), so the server sees
//! the client, and no client gains the rights of a local one. Then the server claims the AF_VSOCK connection by its
//! library ([`claim`]), or the agent copies the data ([`forward`]). One thread does all of this ([`server`],
//! [`connections`]), and waits for no client, server or program.
//!
//! Any program may bind an AF_VSOCK port above 1023, and could take connections for a server. So a client's agent first
//! connects to a port of the server's agent that only root can bind ([`peers`]), and the server's agent opens that port
//! only while it has bound all others itself.
//!
//! Packets of AF_VSOCK pass no packet filter. While the VM has one, the agent offers and redirects nothing ([`filter`]).
//!
//! What may fail: the host or a peer's agent may be absent, and then the connections go by TCP. A hostile peer can open
//! connections, of which the number is bounded for each VM, and send data to servers that the host allows it to reach.

mod address;
mod claim;
mod connections;
mod directory;
mod filter;
mod forward;
mod host;
mod key;
mod listeners;
mod lock;
mod peers;
mod routing;
mod server;
mod table;
mod tcp_connect;

use std::path::Path;
use std::time::{Duration, Instant};

use self::directory::Directory;
use self::peers::Peers;
use self::server::Server;
use self::table::{Shown, Table};
use crate::error::{AgentError, io};

/// The interval at which the agent looks for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The interval at which the agent asks the host.
const DIRECTORY_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for the end of an earlier agent, and runs until `stop` returns true. Then connections go by TCP again.
pub(crate) fn run(stop: &dyn Fn() -> bool) -> Result<(), AgentError> {
    let lock = lock::take(Path::new(lock::PATH), stop);
    let Some(_lock) = io(lock, || {
        format!("lock {} (the agent must be root)", lock::PATH)
    })?
    else {
        return Ok(());
    };
    let table = io(Table::open(), || {
        format!("open {} (the agent must be root)", table::PATH)
    })?;
    routing::steer()?;
    let server = Server::start()?;
    let result = work(&table, &server, stop);
    table.show(&Shown::default());
    routing::stop_steering()?;
    result
}

fn work(table: &Table, server: &Server, stop: &dyn Fn() -> bool) -> Result<(), AgentError> {
    let mut peers = io(Peers::new(), || "watch peers".to_owned())?;
    let mut directory = Directory::default();
    let mut asked: Option<Instant> = None;
    let mut why = String::new();
    let mut shown = None;
    while !stop() && server.is_running() {
        if asked.is_none_or(|asked| asked.elapsed() >= DIRECTORY_INTERVAL) {
            asked = Some(Instant::now());
            directory = host::read_directory().unwrap_or_else(|error| {
                log_once(&mut why, format!("the host says nothing: {error}"));
                Directory::default()
            });
        }
        let is_filtered = filter::is_present();
        if is_filtered {
            log_once(
                &mut why,
                "this VM has a packet filter, so connections go by TCP".to_owned(),
            );
        }
        let usable = match is_filtered {
            true => Directory::default(),
            false => directory.clone(),
        };
        if let Err(error) = server.update(&usable) {
            log_once(&mut why, error.to_string());
        }
        peers.update(&usable);
        let now = Shown {
            is_enabled: !usable.entries.is_empty(),
            // Connections that exist need their addresses in every case.
            directory: directory.clone(),
            up: peers.up(),
        };
        if shown.as_ref() != Some(&now) {
            table.show(&now);
            shown = Some(now);
        }
        io(peers.wait(CHECK_INTERVAL), || "wait for peers".to_owned())?;
    }
    Ok(())
}

/// Logs a reason, unless it is the last one.
fn log_once(last: &mut String, reason: String) {
    if *last != reason {
        eprintln!("vicinity-agent: {reason}");
        *last = reason;
    }
}
