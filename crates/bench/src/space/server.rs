//! The servers under test, each alone on the same CPU.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use super::report::Kind;
use crate::cpus::SWITCH_CPU;
use crate::process::{Process, first_on};
use vm_harness::error::{Context, Error, Result};
use vm_harness::host;

/// The program of the peer.
pub(super) const NGINX: &str = "/usr/sbin/nginx";

/// Folder of the files that both servers serve, inside the folder of the run.
pub(super) const FILES: &str = "files";

/// A running server.
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) at: SocketAddr,
    process: Process,
}

impl Server {
    /// Starts a space's process, for which the files are already published.
    pub(super) fn vicinity(program: &Path, folder: &Path) -> Result<Self> {
        let mut command = first_on(SWITCH_CPU, folder, program);
        command.args(["bench", "space-server"]).arg(folder);
        let mut process = Process::start("space", folder, command)?;
        process.expect("serving on ")?;
        let text = process.expect("\n")?;
        let at = text.trim().parse();
        let unreadable = |_| Error::unreadable("the address of the space's server", &text);
        Ok(Self {
            kind: Kind::Vicinity,
            at: at.map_err(unreadable)?,
            process,
        })
    }

    /// Starts nginx with one worker, configured for static files under load.
    pub(super) fn nginx(folder: &Path) -> Result<Self> {
        let at = free_address()?;
        let file = folder.join("nginx.conf");
        let text = configuration(folder, at);
        fs::write(&file, text).context(|| format!("write {}", file.display()))?;
        let mut command = first_on(SWITCH_CPU, folder, NGINX);
        command.args(["-e", "stderr", "-p"]).arg(folder);
        command.arg("-c").arg(&file);
        let mut process = Process::start("nginx", folder, command)?;
        process.until("nginx that listens", |_| Ok(TcpStream::connect(at).is_ok()))?;
        Ok(Self {
            kind: Kind::Nginx,
            at,
            process,
        })
    }

    /// Returns the id of the process that was started.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the ids of the processes that serve the clients, which are the children.
    pub(super) fn workers(&self) -> Vec<u32> {
        host::family(self.id()).into_iter().skip(1).collect()
    }
}

/// Returns a free port. The port stays free as long as no other program asks the kernel for one.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let at = listener.and_then(|listener| listener.local_addr());
    at.context(|| "find a free port".to_owned())
}

/// Returns the configuration of nginx: files stay open, headers are sent together with the beginning of the body, and
/// connections stay open.
fn configuration(folder: &Path, at: SocketAddr) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("    {name}_temp_path {folder}/{name};\n"));
    format!(
        "user root;\n\
         daemon off;\n\
         worker_processes 1;\n\
         pid {folder}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         {}    access_log off;\n    \
             sendfile on;\n    \
             tcp_nopush on;\n    \
             keepalive_requests 1000000000;\n    \
             open_file_cache max=64;\n    \
             server {{ listen {at}; root {folder}/{FILES}; }}\n\
         }}\n",
        temporary.concat()
    )
}

/// Returns the version of nginx, which prints `nginx version: nginx/1.22.1` on its standard error.
pub(super) fn nginx_version() -> Result<String> {
    let mut command = host::command("sh");
    command.args(["-c", "exec \"$0\" -v 2>&1", NGINX]);
    let text = host::run(command)?;
    let version = text.trim().rsplit('/').next().unwrap_or_default();
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_serve_the_same_folder() {
        let at = "127.0.0.1:99".parse().unwrap();
        let text = configuration(Path::new("/run/x"), at);
        assert!(
            text.contains("listen 127.0.0.1:99; root /run/x/files;"),
            "{text}"
        );
        assert!(text.contains("proxy_temp_path /run/x/proxy;"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
