//! A world of its own: nothing of the host has a name in it.

use std::fs;

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{chdir, getegid, geteuid, pivot_root};
use rustix::thread::UnshareFlags;

/// Where the empty root is put before it is the root. Any folder will do; this one is there, for
/// it has just been used.
const PLACE: &str = "/proc";

/// Leave all of the host's namespaces.
pub(crate) fn enter() -> Result<(), String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    leave().map_err(|error| format!("the kernel makes no user namespace: {error}"))?;
    // Who we are in there: without, no file system can be mounted.
    write("setgroups", "deny")?;
    write("uid_map", &format!("{user} {user} 1"))?;
    write("gid_map", &format!("{group} {group} 1"))?;
    empty_root().map_err(|error| format!("the root folder stays: {error}"))
}

#[allow(unsafe_code)]
fn leave() -> rustix::io::Result<()> {
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    // SAFETY: only `FILES` could take descriptors from under another thread's feet, and it is not
    // among the flags.
    unsafe { rustix::thread::unshare_unsafe(all) }
}

fn write(file: &str, text: &str) -> Result<(), String> {
    let path = format!("/proc/self/{file}");
    fs::write(&path, text).map_err(|error| format!("{path}: {error}"))
}

fn empty_root() -> rustix::io::Result<()> {
    // What is mounted here stays here.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    mount("empty", PLACE, "tmpfs", flags, None)?;
    chdir(PLACE)?;
    // The old root comes to lie on top of the new one, and is taken off.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
