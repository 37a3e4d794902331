//! The processes that may connect to a socket: `owner`, `owner-label` and `owner-cgroup` of a port
//! or a member.

use nix::unistd::User;
use toml::Spanned;

use super::diagnostic::ValueError;
use super::file;

/// The processes that may connect to a socket. By default, any process that the socket's permissions admit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The user's number; root may always connect.
    pub(crate) user: Option<u32>,
    /// A pattern of the security label, see [`matches()`].
    pub(crate) label: Option<String>,
    /// A pattern of the cgroup's path.
    pub(crate) cgroup: Option<String>,
}

/// The keys as in the file.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnerKeys<'f> {
    pub(super) user: Option<&'f Spanned<file::User>>,
    pub(super) label: Option<&'f Spanned<String>>,
    pub(super) cgroup: Option<&'f Spanned<String>>,
}

/// Checks the keys.
pub(super) fn check(written: OwnerKeys<'_>) -> Result<Owner, ValueError> {
    let text = |text: &Spanned<String>| text.get_ref().clone();
    for pattern in [written.label, written.cgroup].into_iter().flatten() {
        if pattern.get_ref().is_empty() {
            let help = "write a pattern, in which `*` stands for any characters; or remove the key to allow all \
                processes";
            return Err(ValueError::new(
                pattern.span(),
                "the pattern is empty",
                help,
            ));
        }
    }
    Ok(Owner {
        user: written.user.map(user).transpose()?,
        label: written.label.map(text),
        cgroup: written.cgroup.map(text),
    })
}

/// Returns the number of a user, given by name or number.
fn user(written: &Spanned<file::User>) -> Result<u32, ValueError> {
    let refused = |message: String| {
        let help = "write the user that QEMU runs as, like \"libvirt-qemu\", or its number";
        ValueError::new(written.span(), message, help)
    };
    let name = match written.get_ref() {
        file::User::Number(number) => {
            return u32::try_from(*number)
                .map_err(|_| refused(format!("{number} is not a user's number")));
        }
        file::User::Name(name) => name,
    };
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let shown = name.escape_debug();
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(refused(format!("this host has no user `{shown}`"))),
        Err(error) => Err(refused(format!(
            "this host cannot look up the user `{shown}`: {error}"
        ))),
    }
}

/// Returns whether all of `text` matches `pattern`, in which `*` stands for any number of
/// characters, including none.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        // The pattern contains no `*`.
        return rest.is_empty();
    };
    for part in parts {
        // The earliest match leaves the longest text for the remaining parts.
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text) in [
            ("web", "web"),
            ("*", ""),
            ("*", "anything"),
            ("libvirt-*", "libvirt-4711"),
            ("*:c1,c2", "system_u:system_r:svirt_t:s0:c1,c2"),
            (
                "/machine.slice/machine-qemu-*-web.scope*",
                "/machine.slice/machine-qemu-3-web.scope/libvirt/emulator",
            ),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("web", "web2"),
            ("web", "2web"),
            ("", "web"),
            ("a*a", "a"),
            ("*:c1,c2", "system_u:system_r:svirt_t:s0:c1,c20"),
            (
                "/machine.slice/machine-qemu-*-web.scope*",
                "/machine.slice/machine-qemu-3-web2.scope",
            ),
            ("a*b*c", "a-c-b"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
