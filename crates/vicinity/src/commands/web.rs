//! `vicinity web`: serves the page to one person, of this host or of a recording.
//!
//! The page is on a loopback port. Other users of the host can connect to it, so that the figures need a token, which
//! is new each time and is in the fragment of the address: browsers do not send a fragment (RFC 3986, 3.5).

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use observe::rates::WATTS_PER_CPU;
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::output::print;
use super::top::source::Source;
use crate::live::Recording;
use crate::serve::web::hub::{Hub, Sample};
use crate::serve::web::{Gate, guarded, routes};

/// Bytes of a token.
const TOKEN: usize = 16;

/// Where, and of what.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Port on 127.0.0.1; by default a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// Show the intervals of this file, which `vicinity top --record` wrote, instead of this host
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// Serves the page until SIGINT or SIGTERM.
pub(crate) fn run(runtime_dir: &Path, options: &Options) -> Result<(), Failure> {
    let hub = match &options.replay {
        Some(file) => replay(file)?,
        None => host(runtime_dir),
    };
    let token = token()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(|error| {
        let port = options.port;
        Failure::Usage(format!(
            "cannot listen on 127.0.0.1:{port}: {error}; choose another --port"
        ))
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let gate = Gate {
        host_name: None,
        token: Some(token.as_str().into()),
    };
    let router = guarded(routes(hub), gate);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        print(&format!(
            "http://{address}/#{token}\n\
             Open this address; Ctrl-C ends it. From another machine, first run there: ssh -L {port}:{address} HOST\n",
            port = address.port()
        ))?;
        tokio::select! {
            served = axum::serve(listener, router) => Ok(served?),
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

/// Returns the figures of this host, as `vicinity top` has them.
fn host(runtime_dir: &Path) -> Hub {
    let runtime_dir = runtime_dir.to_owned();
    Hub::of(move || -> Sample {
        let mut source = Source::of_host(&runtime_dir, WATTS_PER_CPU);
        Box::new(move |_| source.next().ok().flatten())
    })
}

/// Returns the figures of a recording. Its last interval stays.
fn replay(file: &Path) -> Result<Hub, Failure> {
    // A file that is no recording is refused now, and not when a page opens.
    Recording::open(file)?.next()?;
    let file = file.to_owned();
    Ok(Hub::of(move || -> Sample {
        let mut recording = Recording::open(&file).ok();
        Box::new(move |_| match recording.as_mut()?.next() {
            Ok(live) => live,
            Err(error) => {
                tracing::error!("{error}");
                recording = None;
                None
            }
        })
    }))
}

/// Returns a new token of hexadecimal digits.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; TOKEN];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
