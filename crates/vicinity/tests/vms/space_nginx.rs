//! The user's own nginx in front of a space, as docs/space.md has it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use vm_harness::host::Tied;

use crate::rig::Rig;
use crate::space::get;

/// The only block of nginx's configuration there.
fn documented() -> &'static str {
    let book = include_str!("../../../../docs/space.md");
    let block = book.split_once("```nginx\n").unwrap().1;
    block.split_once("```").unwrap().0
}

/// An nginx with this `server` of its configuration, in a folder of its own, until it is dropped.
pub(crate) fn serve(folder: &Path, server: &str) -> Tied {
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
    let mut process = Tied::spawn(command).unwrap();
    // Written once it listens.
    while !pid.exists() {
        let ended = process.ended().unwrap();
        assert!(ended.is_none(), "nginx: {ended:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    process
}

/// It serves at a socket, and ends with this.
pub(crate) struct Nginx {
    _process: Tied,
    socket: PathBuf,
}

impl Nginx {
    /// In front of the space that clients fetch from at this address.
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

    /// What a client gets: the status, and the body's checksum.
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
