//! The part of a message plane that a program carries out in its own calls.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use window::waiter::{Token, Waiter};

use crate::error::Error;
use crate::program_address::ProgramAddress;

/// A plane whose gateway, broker and uplink are in the program's process, see
/// [`InProcess`](crate::remote::InProcess). The calls of the board's endpoints make its progress. A trait, because the plane's parts
/// use the modules of endpoints themselves.
pub(crate) trait Plane: Debug + Send + Sync {
    /// Moves frames and records, unless another thread does that now. Costs little if there are none.
    fn poll(&self);

    /// The same; also handles connects and the ends of links.
    fn serve(&self);

    /// Makes frames that arrive wake a thread that waits for the plane's descriptors, until [`end_sleep`](Self::end_sleep). Returns how
    /// long the thread may sleep.
    fn begin_sleep(&self) -> Duration;

    /// The thread is awake. The kernel need not look for it with each frame any more.
    fn end_sleep(&self);

    /// Adds the plane's descriptors to an endpoint's waiter.
    fn watch(&self, waiter: &Waiter, token: Token) -> Result<(), Errno>;

    /// Takes an endpoint number, before the endpoint opens. Returns false if it is in use.
    fn claim(&self, endpoint: u32) -> Result<bool, Error>;

    /// Gives an endpoint number back after the endpoint has closed.
    fn release(&self, endpoint: u32);

    /// An endpoint of this program and a peer on another host, of this NIC id and endpoint number, connect by datagrams, which the
    /// other program takes and sends at this address. Returns false if there is no room.
    fn introduce(&self, endpoint: u32, peer: (u64, u32), program: SocketAddr) -> bool;
}

/// The plane of datagrams that a program may have, see [`DatagramPlane`](crate::remote::DatagramPlane). It begins when a program of another host first
/// wants one, because most programs have peers on their own host only.
pub(crate) trait ProgramPlane: Debug + Send + Sync {
    /// Returns where the plane takes datagrams. The first call opens the socket. `None` if the program cannot have one.
    fn address(&self) -> Option<ProgramAddress>;

    /// Returns the plane, and the path of the socket of its gateway. The first call begins the plane. `None` if the program cannot have one.
    fn begin(&self) -> Option<(Arc<dyn Plane>, PathBuf)>;
}

/// An endpoint number that the plane of this process has taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    plane: Option<Arc<dyn Plane>>,
    endpoint: u32,
}

impl Claim {
    /// Takes an endpoint number; `None` if it is in use. Without a plane in the process, the socket of the endpoint is enough.
    pub(crate) fn take(
        plane: Option<&Arc<dyn Plane>>,
        endpoint: u32,
    ) -> Result<Option<Self>, Error> {
        let free = plane.map_or(Ok(true), |plane| plane.claim(endpoint))?;
        Ok(free.then(|| Self {
            plane: plane.cloned(),
            endpoint,
        }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(plane) = &self.plane {
            plane.release(self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use window::attach::{Channel, Message};

    use super::*;
    use crate::address::{Address, Board};
    use crate::connect::layout;
    use crate::endpoint::{Endpoint, Options};
    use crate::handshake::{ACCEPTED, CLOSED, Hello, HelloReply};
    use crate::limits::POLLS_PER_CONNECT_CHECK;

    /// Counts its polls.
    #[derive(Debug, Default)]
    struct Counting(AtomicU32);

    impl Plane for Counting {
        fn poll(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn serve(&self) {}

        fn begin_sleep(&self) -> Duration {
            Duration::MAX
        }

        fn end_sleep(&self) {}

        fn watch(&self, _waiter: &Waiter, _token: Token) -> Result<(), Errno> {
            Ok(())
        }

        fn claim(&self, _endpoint: u32) -> Result<bool, Error> {
            Ok(true)
        }

        fn release(&self, _endpoint: u32) {}

        fn introduce(&self, _endpoint: u32, _peer: (u64, u32), _program: SocketAddr) -> bool {
            true
        }
    }

    /// Frames wait for the program's calls, so each call that looks for messages makes the plane's progress. Without a remote peer, there are
    /// only connects.
    #[test]
    fn each_look_for_messages_of_remote_peers_polls_the_plane() {
        let folder = tempfile::tempdir().unwrap();
        let plane = Arc::new(Counting::default());
        let board = Board::open(folder.path()).unwrap();
        let board = board.with_plane(plane.clone());
        let mut endpoint = Endpoint::open(&board, &Options::default()).unwrap();
        endpoint.leave_in_place();
        let looks: [fn(&mut Endpoint); 2] = [Endpoint::progress, |endpoint| {
            assert!(!endpoint.read_next(1));
        }];
        for (remote, polls) in [(false, 2), (true, 2 * POLLS_PER_CONNECT_CHECK)] {
            endpoint.uses_plane = remote;
            for look in looks {
                plane.0.store(0, Ordering::Relaxed);
                for _ in 0..2 * POLLS_PER_CONNECT_CHECK {
                    look(&mut endpoint);
                }
                assert_eq!(plane.0.load(Ordering::Relaxed), polls);
            }
        }
    }

    /// The NIC ids of another host, and of a VM that a daemon's gateway reaches.
    const OTHER_HOST: u64 = 0x0200_0000_0009;
    const MEMBER: u64 = 0x0200_0000_0007;

    /// A process that offers a connection with endpoint 3 of these NICs, as a daemon's gateway. Prints the answers.
    #[test]
    #[ignore = "a role of the other test"]
    fn daemon() {
        let socket = std::env::var("VICINITY_TEST_SOCKET").unwrap();
        let nic = std::env::var("VICINITY_TEST_NIC").unwrap().parse().unwrap();
        let to = Address { nic, endpoint: 1 };
        for from in [OTHER_HOST, MEMBER].map(|nic| Address { nic, endpoint: 3 }) {
            let hello = Hello {
                from,
                to,
                session: 5,
                own_key: Some(0),
                key: 0,
                fences: true,
                process_memory: false,
                other_host: false,
                program: None,
                members: None,
            };
            let channel = Channel::connect(socket.as_ref()).unwrap();
            let window = window::region::endpoint_pair(layout().unwrap()).unwrap();
            channel.offer(Some(&window), None, &hello.encode()).unwrap();
            let answer = loop {
                match channel.receive().unwrap() {
                    Some(Message::Answer { handshake_data, .. }) => break handshake_data,
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            let reply = HelloReply::decode(&answer).unwrap();
            eprintln!("verdict {}", reply.verdict);
        }
    }

    /// The daemon may have received a connect of another host just before the program had the endpoint. From then on, the frames of
    /// such a connection are the program's.
    #[test]
    fn a_daemon_connects_members_only_to_an_endpoint_with_a_plane_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let board = board
            .with_gateway_in(&folder.path().join("own"), vec![MEMBER])
            .with_plane(Arc::new(Counting::default()));
        let options = Options {
            endpoint: Some(1),
            ..Options::default()
        };
        let mut endpoint = Endpoint::open(&board, &options).unwrap();
        let mut daemon = std::process::Command::new(std::env::current_exe().unwrap());
        daemon.args([
            "plane::tests::daemon",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        daemon.env("VICINITY_TEST_SOCKET", board.socket(1));
        daemon.env("VICINITY_TEST_NIC", board.nic().to_string());
        let mut daemon = daemon
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        while daemon.try_wait().unwrap().is_none() {
            endpoint.poll_sockets();
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = daemon.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let verdicts: Vec<_> = said
            .lines()
            .filter_map(|line| line.strip_prefix("verdict "))
            .collect();
        let expected = [CLOSED, ACCEPTED].map(|verdict| verdict.to_string());
        assert_eq!(verdicts, expected, "{said}");
    }
}
