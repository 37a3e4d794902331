//! TCP on loopback, as two threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use vm_harness::error::{Context, Error, Result};

use super::iterations::count;
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use report::message_perf::Figures;
use vm_harness::affinity::{on_cpu, pin};

/// The work that both sides do.
#[derive(Clone, Copy)]
struct Work {
    length: usize,
    trips: u64,
    messages: u64,
}

pub(super) fn measure(length: u32) -> Result<Figures> {
    let work = Work {
        length: length as usize,
        trips: count(length, 256 << 20, 10_000),
        messages: count(length, 1 << 30, 200_000),
    };
    let opening = || "open a TCP connection on loopback".to_owned();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(opening)?;
    let address = listener.local_addr().context(opening)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(&listener, work));
        let ask = || TcpStream::connect(address).and_then(|stream| run_client(stream, work));
        let asked = on_cpu(GENERATOR_CPU, ask)?;
        let served = server.join();
        let failed = || Error::Host("the TCP server panicked".to_owned());
        let sending = || "send TCP on loopback".to_owned();
        served.map_err(|_| failed())?.context(sending)?;
        asked.context(sending)
    })
}

fn serve(listener: &TcpListener, work: Work) -> std::io::Result<()> {
    // If pinning fails here, it also fails for the client thread, which returns the error.
    let _reported_by_the_asker = pin(SWITCH_CPU);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut message = vec![0; work.length];
    for _ in 0..work.trips {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
    for _ in 0..work.messages {
        stream.read_exact(&mut message)?;
    }
    stream.write_all(&[0])
}

fn run_client(mut stream: TcpStream, work: Work) -> std::io::Result<Figures> {
    stream.set_nodelay(true)?;
    let mut message = vec![0; work.length];
    let mut halves = Vec::new();
    let mut before = Instant::now();
    for _ in 0..work.trips {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        let now = Instant::now();
        halves.push((now - before).as_secs_f64() * 1e6 / 2.0);
        before = now;
    }
    let start = Instant::now();
    for _ in 0..work.messages {
        stream.write_all(&message)?;
    }
    stream.read_exact(&mut [0])?;
    Ok(Figures::new(&halves, work.messages, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_and_a_stream_are_measured() {
        let figures = measure(1 << 20).unwrap();
        assert!(figures.p50_us > 0.0 && figures.p50_us <= figures.p99_us);
        assert!(figures.messages_per_s > 0.0);
    }
}
