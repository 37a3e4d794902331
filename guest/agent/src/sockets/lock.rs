//! The lock that one agent of a VM holds while it works.
//!
//! An agent that ends removes its routing rule and clears the table. If another agent had begun before, it would
//! lose both.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The file with the lock. Only root opens it: any user could lock the table, which all can read.
pub(super) const PATH: &str = "/run/vicinity-agent/sockets.lock";

/// The interval at which a waiting agent tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Locks the file, and waits while another agent has the lock. Returns `None` if `stop` returns true before. Closing
/// the file ends the lock, also when the agent is killed.
///
/// # Errors
/// The file cannot be opened or locked.
pub(super) fn take(path: &Path, stop: &dyn Fn() -> bool) -> io::Result<Option<File>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    let mut is_first_try = true;
    while !stop() {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if std::mem::take(&mut is_first_try) {
            eprintln!("vicinity-agent: waits for the end of another agent");
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn an_agent_waits_for_the_end_of_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/lock");
        let first = take(&path, &|| false).unwrap().unwrap();
        assert_eq!(
            first.metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let lock = take(&path, &|| false).unwrap();
                (lock.is_some(), has_ended.load(Ordering::Relaxed))
            });
            std::thread::sleep(3 * RETRY_INTERVAL);
            has_ended.store(true, Ordering::Relaxed);
            drop(first);
            assert_eq!(second.join().unwrap(), (true, true));
        });
    }

    #[test]
    fn an_agent_that_waits_can_be_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = take(&path, &|| false).unwrap().unwrap();
        let asked = AtomicBool::new(false);
        let second = take(&path, &|| asked.swap(true, Ordering::Relaxed)).unwrap();
        assert!(second.is_none());
    }
}
