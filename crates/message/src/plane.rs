//! The part of a message plane that a program carries out in its own calls.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use window::waiter::{Token, Waiter};

use crate::error::Error;

/// A plane whose gateway, broker and uplink are in the program's process, see
/// [`InProcess`](crate::remote::InProcess). The calls of the board's endpoints make its progress. A trait, because the plane's parts
/// use the modules of endpoints themselves.
pub(crate) trait Plane: Debug + Send + Sync {
    /// Moves frames and records, unless another thread does that now. Costs little if there are none.
    fn poll(&self);

    /// The same; also handles connects and the ends of links.
    fn serve(&self);

    /// Returns how long a thread may sleep that waits for the plane's descriptors.
    fn sleep_limit(&self) -> Duration;

    /// Adds the plane's descriptors to an endpoint's waiter.
    fn watch(&self, waiter: &Waiter, token: Token) -> Result<(), Errno>;

    /// Takes an endpoint number, before the endpoint opens. Returns false if it is in use.
    fn claim(&self, endpoint: u32) -> Result<bool, Error>;

    /// Gives an endpoint number back after the endpoint has closed.
    fn release(&self, endpoint: u32);
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

    use super::*;
    use crate::address::Board;
    use crate::endpoint::{Endpoint, Options};

    /// Counts its polls.
    #[derive(Debug, Default)]
    struct Counting(AtomicU32);

    impl Plane for Counting {
        fn poll(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn serve(&self) {}

        fn sleep_limit(&self) -> Duration {
            Duration::MAX
        }

        fn watch(&self, _waiter: &Waiter, _token: Token) -> Result<(), Errno> {
            Ok(())
        }

        fn claim(&self, _endpoint: u32) -> Result<bool, Error> {
            Ok(true)
        }

        fn release(&self, _endpoint: u32) {}
    }

    /// Frames wait for the program's calls, so each call that looks for messages makes the plane's progress.
    #[test]
    fn each_look_for_messages_polls_the_plane() {
        let folder = tempfile::tempdir().unwrap();
        let plane = Arc::new(Counting::default());
        let board = Board::open(folder.path()).unwrap();
        let board = board.with_plane(plane.clone());
        let mut endpoint = Endpoint::open(&board, &Options::default()).unwrap();
        endpoint.leave_in_place();
        let looks: [fn(&mut Endpoint); 2] = [Endpoint::progress, |endpoint| {
            assert!(!endpoint.read_next(1));
        }];
        for look in looks {
            plane.0.store(0, Ordering::Relaxed);
            for _ in 0..10 {
                look(&mut endpoint);
            }
            assert_eq!(plane.0.load(Ordering::Relaxed), 10);
        }
    }
}
