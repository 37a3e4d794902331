//! The part of a message plane that a program carries out in its own calls.

use std::fmt::Debug;
use std::time::Duration;

use rustix::io::Errno;
use window::waiter::{Token, Waiter};

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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
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
