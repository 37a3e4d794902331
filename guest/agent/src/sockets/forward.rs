//! Copies the data of a server that does not use the library.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;

use socket2::Socket;

const BUFFER: usize = 64 << 10;

/// Copies both ways until both have ended, or one fails.
pub(super) fn forward(vsock: Socket, tcp: Socket) -> io::Result<()> {
    let both = Arc::new((vsock, tcp));
    let other = Arc::clone(&both);
    let thread = thread::Builder::new().stack_size(128 << 10);
    let back = thread.spawn(move || copy(&other.1, &other.0))?;
    copy(&both.0, &both.1);
    // A panic of the thread is none of this connection.
    drop(back.join());
    Ok(())
}

/// Copies one way, and passes the end on. An error ends both ways.
fn copy(from: &Socket, to: &Socket) {
    let done = try_copy(from, to);
    let how = match done {
        Ok(()) => Shutdown::Write,
        Err(_) => Shutdown::Both,
    };
    // The other end may be gone.
    drop(to.shutdown(how));
    if done.is_err() {
        drop(from.shutdown(Shutdown::Both));
    }
}

fn try_copy(mut from: &Socket, mut to: &Socket) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    fn pair() -> (Socket, Socket) {
        Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap()
    }

    #[test]
    fn data_and_ends_go_both_ways() {
        let (mut client, vsock) = pair();
        let (tcp, mut server) = pair();
        let thread = thread::spawn(|| forward(vsock, tcp));
        let sent: Vec<u8> = (0..=250u8).cycle().take(1_000_000).collect();
        let (from, copy) = (client.try_clone().unwrap(), sent.clone());
        let writer = thread::spawn(move || {
            (&from).write_all(&copy).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == sent);
        // The other way is still open.
        server.write_all(b"bye").unwrap();
        drop(server);
        got.clear();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"bye");
        writer.join().unwrap();
        thread.join().unwrap().unwrap();
    }
}
