//! Round trips of TCP between the two hosts, by programs that poll.

use std::fs::File;
use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use report::stats::median;
use vm_harness::affinity::pin;
use vm_harness::error::{Context, Error, Result};

use super::namespace::Namespace;

/// Longest time to wait for the other end.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the median of round trips in microseconds, with a thread in each host that polls its socket.
pub(super) fn round_trip(hosts: &[Namespace; 2], length: usize, trips: u32) -> Result<f64> {
    let [client, server] = hosts;
    let (opened, address) = mpsc::channel();
    let failed = || Error::Host("a thread of the TCP benchmark panicked".to_owned());
    let sending = || "send TCP between two hosts".to_owned();
    std::thread::scope(|scope| {
        let serve = scope.spawn(move || {
            enter(server)?;
            let listener = TcpListener::bind((server.address()?, 0)).context(sending)?;
            // If the client is gone, its thread returns the error.
            let _client_is_gone = opened.send(listener.local_addr().context(sending)?);
            let accepted = accept(&listener).context(sending)?;
            echo(accepted, length, trips).context(sending)
        });
        let ask = scope.spawn(move || {
            enter(client)?;
            let address = address.recv().map_err(|_| failed())?;
            measure(address, length, trips).context(sending)
        });
        let asked = ask.join().map_err(|_| failed())?;
        serve.join().map_err(|_| failed())??;
        asked
    })
}

/// Moves this thread into the namespace and onto the CPU of a host.
fn enter(namespace: &Namespace) -> Result<()> {
    let path = format!("/run/netns/{}", namespace.name);
    let entering = || format!("enter the network namespace {path}");
    let file = File::open(&path).context(entering)?;
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(file.as_fd(), network)
        .map_err(std::io::Error::from)
        .context(entering)?;
    pin(namespace.host.cpu)
}

/// Accepts the client's connection. A client that failed does not connect, so the wait has a limit.
fn accept(listener: &TcpListener) -> IoResult<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + LIMIT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

fn echo(mut stream: TcpStream, length: usize, trips: u32) -> IoResult<()> {
    prepare(&stream)?;
    let mut message = vec![0; length];
    for _ in 0..trips {
        poll_exact(&mut stream, &mut message)?;
        stream.write_all(&message)?;
    }
    Ok(())
}

fn measure(address: SocketAddr, length: usize, trips: u32) -> IoResult<f64> {
    let mut stream = TcpStream::connect(address)?;
    prepare(&stream)?;
    let mut message = vec![0; length];
    let mut times = Vec::new();
    let mut before = Instant::now();
    for _ in 0..trips {
        stream.write_all(&message)?;
        poll_exact(&mut stream, &mut message)?;
        let now = Instant::now();
        times.push((now - before).as_secs_f64() * 1e6);
        before = now;
    }
    Ok(median(&times))
}

fn prepare(stream: &TcpStream) -> IoResult<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Reads a message as the progress engine of an MPI library does: again and again, until it is there.
fn poll_exact(stream: &mut TcpStream, message: &mut [u8]) -> IoResult<()> {
    let end = Instant::now() + LIMIT;
    let mut read = 0;
    while let Some(rest) = message.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() >= end {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
