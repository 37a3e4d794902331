//! Unix groups of this host, by name or number, and what their users may reach.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::Group;

/// Returns the number of a group.
///
/// # Errors
/// A sentence: there is no such group, or it cannot be looked up.
pub(crate) fn number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let shown = name.escape_debug();
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("this host has no group `{shown}`")),
        Err(error) => Err(format!(
            "this host cannot look up the group `{shown}`: {error}"
        )),
    }
}

/// Lets all users pass through a folder, because a group that may use something in it need not be the folder's. Everything in it has
/// permissions of its own.
///
/// # Errors
/// The permissions cannot be changed.
pub(crate) fn let_pass(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.mode() | 0o001;
    fs::set_permissions(folder, Permissions::from_mode(mode & 0o7777))
}
