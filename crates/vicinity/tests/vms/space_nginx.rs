//! The user's own nginx as a proxy of a space, as in docs/space.md.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use vm_harness::host::ChildProcess;

use crate::rig::Rig;
use crate::space::get;

/// Returns the only block of nginx's configuration in docs/space.md.
fn documented() -> &'static str {
    let book = include_str!("../../../../docs/space.md");
    let block = book.split_once("```nginx\n").unwrap().1;
    block.split_once("```").unwrap().0
}

/// Starts an nginx with this `server` block, in its own folder. It ends when the returned value is
/// dropped.
pub(crate) fn serve(folder: &Path, server: &str) -> ChildProcess {
    std::fs::create_dir(folder).unwrap();
    let [config, pid] = ["conf", "pid"].map(|name| folder.join(name));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary =
        temporary.map(|kind| format!("{kind}_temp_path {};", folder.join(kind).display()));
    let text = format!(
        "daemon off; master_process off; error_log stderr; pid {};\nevents {{}}\n\
         http {{ access_log off; {}\nserver {{\n{server}\n}} }}\n",
        pid.display(),
        temporary.concat(),
    );
    std::fs::write(&config, text).unwrap();
    let mut command = vm_harness::host::command("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&config);
    command.stdin(Stdio::null());
    let mut process = ChildProcess::spawn(command).unwrap();
    // nginx writes this file once it listens.
    while !pid.exists() {
        let ended = process.ended().unwrap();
        assert!(ended.is_none(), "nginx: {ended:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    process
}

/// An nginx that serves at a socket and ends when this value is dropped.
pub(crate) struct Nginx {
    _process: ChildProcess,
    socket: PathBuf,
}

impl Nginx {
    /// Starts an nginx as a proxy of the space at this address.
    pub(crate) fn start(rig: &Rig, space: &str) -> Self {
        let folder = rig.folder().join("nginx");
        let socket = folder.join("sock");
        let block = documented().replace("127.0.0.1:8080", space);
        let listen = format!("listen unix:{};\n{block}", socket.display());
        Self {
            _process: serve(&folder, &listen),
            socket,
        }
    }

    /// Fetches a path as a client. Returns the status and the body's checksum.
    pub(crate) fn fetch(&self, path: &str, more: &[&str]) -> (String, String) {
        let socket = ["--unix-socket", self.socket.to_str().unwrap()];
        let folder = self.socket.parent().unwrap();
        get(
            folder,
            &format!("http://nginx{path}"),
            &[&socket, more].concat(),
        )
    }
}
