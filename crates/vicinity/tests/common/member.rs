//! A member of the message plane that runs in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use message::remote::{Gateway, Transport};
use message::{Board, Endpoint, Options};

use super::until;

/// A member's gateway. It leaves when this value is dropped.
pub(crate) struct Member {
    pub(crate) board: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    /// Joins by a socket of a host. Retries until the host expects the member.
    pub(crate) fn join(socket: &Path, board: &Path) -> Self {
        let way = Transport::Socket(socket.to_owned());
        let mut joined = None;
        until("a gateway", || {
            joined = Gateway::join(board, &way).ok();
            joined.is_some()
        });
        let mut gateway = joined.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        // The host may end before the gateway, so ignore its error.
        let run = move || drop(gateway.run(|| !seen.load(Ordering::Relaxed)));
        let thread = Some(std::thread::spawn(run));
        Self {
            board: board.to_owned(),
            stop,
            thread,
        }
    }

    pub(crate) fn open(&self) -> Endpoint {
        let board = Board::open(&self.board).unwrap();
        Endpoint::open(&board, &Options::default()).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
