//! Unix groups of this host, by name or number.

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
