//! Watching folders for the sockets that QEMUs put there.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use futures_core::Stream;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};

/// Bytes of events taken at once: one event has a header and a name of up to 255 bytes.
const EVENTS: usize = 16 * 1024;

/// A network's watched folders.
#[derive(Debug)]
pub(in crate::serve) struct Watch {
    events: EventStream<Vec<u8>>,
    folders: HashMap<WatchDescriptor, PathBuf>,
}

impl Watch {
    pub(in crate::serve) fn new() -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; EVENTS])?;
        let folders = HashMap::new();
        Ok(Self { events, folders })
    }

    /// Watches one more folder.
    pub(in crate::serve) fn add(&mut self, folder: &Path) -> io::Result<()> {
        let appears = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::ONLYDIR;
        let watch = self.events.watches().add(folder, appears)?;
        self.folders.insert(watch, folder.to_owned());
        Ok(())
    }

    /// Returns the next paths that appear; all paths in the folders if the kernel's event queue overflowed. Cancel
    /// safe.
    pub(in crate::serve) async fn appeared(&mut self) -> io::Result<Vec<PathBuf>> {
        loop {
            let event = poll_fn(|context| Pin::new(&mut self.events).poll_next(context)).await;
            let Some(event) = event.transpose()? else {
                return std::future::pending().await;
            };
            if event.mask.contains(EventMask::Q_OVERFLOW) {
                let folders = self.folders.values();
                return Ok(folders.flat_map(|folder| entries(folder)).collect());
            }
            if let (Some(folder), Some(name)) = (self.folders.get(&event.wd), event.name) {
                return Ok(vec![folder.join(name)]);
            }
        }
    }
}

/// The paths in a folder, none when it cannot be read.
pub(in crate::serve) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}
