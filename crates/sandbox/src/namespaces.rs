//! Namespaces of the process: no path and no name in them leads to anything of the host.

use std::fs;

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{chdir, getegid, geteuid, pivot_root};
use rustix::thread::UnshareFlags;

/// The folder on which the empty root is mounted before it becomes the root. Any folder will do; this one
/// exists, because the process has just used it.
const NEW_ROOT: &str = "/proc";

/// Leaves the host's namespaces. The names of the host (UTS) and the view of cgroups stay: to change the first, a
/// process needs a capability in the host's user namespace, and the second is seen in `/proc` only, which the
/// process does not have. The unit denies the supervisor both namespaces.
pub(crate) fn enter() -> Result<(), String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    leave().map_err(|error| format!("the kernel refuses a user namespace: {error}"))?;
    // Maps the user into the new namespace: without a mapping no file system can be mounted.
    write("setgroups", "deny")?;
    write("uid_map", &format!("{user} {user} 1"))?;
    write("gid_map", &format!("{group} {group} 1"))?;
    empty_root().map_err(|error| format!("cannot change the root folder: {error}"))
}

#[allow(unsafe_code)]
fn leave() -> rustix::io::Result<()> {
    let all =
        UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: only the flag `FILES` could change descriptors that another thread uses, and it is not
    // among the flags.
    unsafe { rustix::thread::unshare_unsafe(all) }
}

fn write(file: &str, text: &str) -> Result<(), String> {
    let path = format!("/proc/self/{file}");
    fs::write(&path, text).map_err(|error| format!("{path}: {error}"))
}

fn empty_root() -> rustix::io::Result<()> {
    // Mounts made here must not propagate to the host.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    mount("empty", NEW_ROOT, "tmpfs", flags, None)?;
    chdir(NEW_ROOT)?;
    // `pivot_root` puts the old root on top of the new one; it is unmounted.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
