//! Connections that are made for a process that cannot connect.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use memory_plane::push::Target;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time after which a connection attempt fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection attempt, if there is one.
#[derive(Debug, Default)]
pub(in crate::serve) struct Dialing(JoinSet<Result<OwnedFd, String>>);

impl Dialing {
    /// Begins to connect, unless an attempt is under way.
    pub(in crate::serve) fn start(&mut self, store: &Target) {
        if self.0.is_empty() {
            let place = (store.host.clone(), store.port);
            self.0.spawn(async move {
                let stream = timeout(CONNECT_TIMEOUT, connect(place, look_up)).await;
                let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let stream = stream.and_then(TcpStream::into_std);
                stream.map(OwnedFd::from).map_err(|error| error.to_string())
            });
        }
    }

    /// Returns the connection, or why the attempt failed. Waits while there is no attempt. Cancel safe.
    pub(in crate::serve) async fn done(&mut self) -> Result<OwnedFd, String> {
        match self.0.join_next().await {
            Some(done) => done.unwrap_or_else(|error| Err(error.to_string())),
            None => std::future::pending().await,
        }
    }

    /// Gives the attempt up, because its process is gone.
    pub(in crate::serve) fn cancel(&mut self) {
        self.0 = JoinSet::new();
    }
}

type HostPort = (String, u16);
type Addresses = Vec<SocketAddr>;

async fn connect(
    place: HostPort,
    look_up: fn(&HostPort) -> io::Result<Addresses>,
) -> io::Result<TcpStream> {
    let (asker, answer) = oneshot::channel();
    // A thread of its own: the runtime waits for its threads when the daemon ends, and a look-up goes on for
    // as long as the name server does not answer.
    let thread = std::thread::Builder::new().name("look-up".to_owned());
    thread.spawn(move || asker.send(look_up(&place)))?;
    let addresses = answer.await.map_err(io::Error::other)??;
    TcpStream::connect(addresses.as_slice()).await
}

fn look_up((host, port): &HostPort) -> io::Result<Addresses> {
    Ok((host.as_str(), *port).to_socket_addrs()?.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A look-up has ended.
    static ENDED: AtomicBool = AtomicBool::new(false);

    fn long(_: &HostPort) -> io::Result<Addresses> {
        std::thread::sleep(Duration::from_secs(20));
        ENDED.store(true, Ordering::SeqCst);
        Ok(Vec::new())
    }

    #[test]
    fn a_look_up_does_not_delay_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let place = ("store".to_owned(), 80);
        let connecting = runtime.spawn(connect(place, long));
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
        assert!(!ENDED.load(Ordering::SeqCst) && connecting.is_finished());
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_connected_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        connect(("localhost".to_owned(), port), look_up)
            .await
            .unwrap();
        let nowhere = connect(("no.invalid".to_owned(), port), look_up).await;
        assert!(nowhere.is_err());
    }
}
