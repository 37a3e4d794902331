//! Lets the users of a Unix group use a board, and the folder of an interface.
//!
//! The owner of such a folder, root as a rule, has the folder's own files, and the programs of the group cannot replace them. What the
//! programs create is in a folder below, which the group may write. No other user may pass the outer folder. So the files in it have
//! the same permissions for all users: those of a program's socket would otherwise depend on the umask of its user. The sticky bit marks
//! such a folder. (The setgid bit, which would pass the group on, is refused by systemd's `RestrictSUIDSGID=`.)

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::geteuid;

/// The permissions of the outer folder: its group may pass it, and the sticky bit marks it.
const OUTER: u32 = 0o1750;

/// The permissions of the folder in which programs create their files.
const INNER: u32 = 0o770;

/// The permissions of both without a group.
const PRIVATE: u32 = 0o700;

/// The bits by which [`is_shared`] recognizes the outer folder: the mark, and those of strangers.
const MARK: u32 = 0o1007;

/// What the users of the group may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Read,
    ReadAndWrite,
}

/// Creates a folder, and one of this name in it. Lets the users of a Unix group use the folder and create files in the inner one, or
/// takes that back, without a group. Other permissions that an existing folder has stay. Only the folders' owner may write the outer
/// one and the folder around it.
pub(crate) fn share(folder: &Path, inner: &str, group: Option<u32>) -> io::Result<()> {
    let inner = folder.join(inner);
    fs::create_dir_all(&inner)?;
    match group {
        Some(_) => {
            for (path, mode) in [(&inner, INNER), (&folder.to_owned(), OUTER)] {
                chown(path, None, group)?;
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
        }
        None if is_shared(folder)? => {
            for path in [folder, &inner] {
                fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
            }
        }
        None => {}
    }
    Ok(())
}

/// Gives the users of the group that may use `folder`, if there is one, these rights to a file in it or in a folder below. Each user does
/// that for the files that are this user's.
pub(crate) fn admit(folder: &Path, path: &Path, rights: Rights) -> io::Result<()> {
    if !is_shared(folder)? {
        return Ok(());
    }
    // Another user of the group may replace what is in the inner folder: the permissions are those of the file that was opened.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    let found = fs::metadata(&opened)?;
    if found.uid() != geteuid().as_raw() {
        return Ok(());
    }
    let mode = found.mode();
    let owner = mode >> 6 & 0o7;
    let others = match rights {
        Rights::Read => owner & 0o5,
        Rights::ReadAndWrite => owner,
    };
    let mode = mode & 0o7700 | others << 3 | others;
    fs::set_permissions(opened, Permissions::from_mode(mode))
}

/// Returns whether the users of a Unix group may use a folder.
fn is_shared(folder: &Path) -> io::Result<bool> {
    match fs::metadata(folder) {
        Ok(found) => Ok(found.mode() & MARK == OUTER & MARK),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_folder_is_shared_with_a_group_and_private_again() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (
            folder.path().join("outer"),
            folder.path().join("outer/inner"),
        );
        let own = rustix::process::getegid().as_raw();
        share(&outer, "inner", Some(own)).unwrap();
        assert_eq!((mode(&outer), mode(&inner)), (OUTER, INNER));
        share(&outer, "inner", None).unwrap();
        assert_eq!((mode(&outer), mode(&inner)), (PRIVATE, PRIVATE));
        // A folder with permissions of its own keeps them.
        fs::set_permissions(&outer, Permissions::from_mode(0o755)).unwrap();
        share(&outer, "inner", None).unwrap();
        assert_eq!(mode(&outer), 0o755);
    }

    #[test]
    fn files_admit_others_only_in_a_shared_folder_and_never_through_a_symbolic_link() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::getegid().as_raw();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        let make = |path: &Path, mode| {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        make(&file, 0o600);
        admit(folder.path(), &file, Rights::ReadAndWrite).unwrap();
        assert_eq!(mode(&file), 0o600);
        share(folder.path(), "inner", Some(own)).unwrap();
        admit(folder.path(), &file, Rights::ReadAndWrite).unwrap();
        assert_eq!(mode(&file), 0o666);
        make(&file, 0o600);
        admit(folder.path(), &file, Rights::Read).unwrap();
        assert_eq!(mode(&file), 0o644);
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("target");
        make(&target, 0o600);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let _refused = admit(folder.path(), &link, Rights::ReadAndWrite);
        assert_eq!(mode(&target), 0o600);
    }
}
