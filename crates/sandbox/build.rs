//! Collects the notes `// syscalls: …` from the code that makes up each kind of data plane.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where the code of a network's data plane is, seen from this crate.
const NETWORK: [&str; 4] = [
    "src",
    "../switch/src",
    "../vhost/src",
    "../vicinity/src/processes/data_plane.rs",
];

/// Where the code of the message plane's is.
const MESSAGES: [&str; 6] = [
    "src",
    "../window/src",
    "../vhost/src/raw/alarm.rs",
    "../message/src/remote",
    "../switch/src/control",
    "../vicinity/src/processes/message/broker.rs",
];

/// Where the code of the message plane's uplink is.
const UPLINK: [&str; 5] = [
    "src",
    "../window/src/doorbell.rs",
    "../window/src/raw",
    "../mxoe/src",
    "../vicinity/src/processes/message/uplink.rs",
];

/// Where the code of a space's process is. Its libraries have no notes: those stand beside what uses them.
const SPACE: [&str; 4] = [
    "src",
    "../memory-plane/src",
    "../vhost/src/fd_kind.rs",
    "../vicinity/src/processes/space",
];

/// Where the code of the sockets plane is.
const VSOCK: [&str; 5] = [
    "src",
    "../vsock/src",
    "../vhost/src",
    "../switch/src/control",
    "../vicinity/src/processes/vsock",
];

/// Calls that newer architectures do without.
const OF_X86: [&str; 1] = ["epoll_wait"];

const SYSCALL_NOTE: &str = "// syscalls: ";

fn main() -> io::Result<()> {
    let tables = table("NETWORK", &NETWORK)?
        + &table("MESSAGES", &MESSAGES)?
        + &table("UPLINK", &UPLINK)?
        + &table("SPACE", &SPACE)?
        + &table("VSOCK", &VSOCK)?;
    let folder = env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    fs::write(folder.join("noted.rs"), tables)
}

fn table(name: &str, code: &[&str]) -> io::Result<String> {
    let mut names = BTreeSet::new();
    for code in code {
        println!("cargo::rerun-if-changed={code}");
        collect(Path::new(code), &mut names)?;
    }
    let mut table =
        format!("/// Allowed system calls: name and number.\nconst {name}: &[(&str, i64)] = &[\n");
    for name in names {
        if OF_X86.contains(&name.as_str()) {
            table += "    #[cfg(target_arch = \"x86_64\")]\n";
        }
        table += &format!("    (\"{name}\", libc::SYS_{name}),\n");
    }
    Ok(table + "];\n")
}

fn collect(path: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), names)?;
        }
        return Ok(());
    }
    for line in fs::read_to_string(path)?.lines() {
        if let Some(note) = line.trim_start().strip_prefix(SYSCALL_NOTE) {
            names.extend(note.split_whitespace().map(str::to_owned));
        }
    }
    Ok(())
}
