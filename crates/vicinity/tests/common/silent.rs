//! A file whose close is never answered. It makes a thread of another process wait in the kernel where no
//! signal reaches it. Its file system is `silent.py`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};

/// The mounted file system and its server. All waits end when this value is dropped.
pub(crate) struct Silent {
    folder: tempfile::TempDir,
    server: Child,
}

impl Silent {
    pub(crate) fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/silent.py");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .arg(folder.path())
            .stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut said = String::new();
        let output = server.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Self { folder, server }
    }

    /// Opens the file. Closing it waits, also in a process that this process starts meanwhile.
    pub(crate) fn open(&self) -> File {
        File::open(self.folder.path().join("file")).unwrap()
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
        let _unmounted = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}
