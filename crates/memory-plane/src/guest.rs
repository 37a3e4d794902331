//! What is said to the guest's kernel and by it, in its own terms: errors, flags, status.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::filesystem::{Entry, SetattrValid, ZeroCopyWriter};
use space::store::{Attributes, Node, Store, StoreError};

use crate::shared::now;

/// Zeros are written to the guest in steps of so many.
const ZEROS: [u8; 4096] = [0; 4096];

/// What the guest is told.
pub(crate) fn told(error: StoreError) -> io::Error {
    let number = match error {
        StoreError::Full => libc::ENOSPC,
        StoreError::TooLarge => libc::EFBIG,
        StoreError::TooMany => libc::EDQUOT,
        StoreError::Missing => libc::ENOENT,
        StoreError::Exists => libc::EEXIST,
        StoreError::NotAFolder => libc::ENOTDIR,
        StoreError::AFolder => libc::EISDIR,
        StoreError::NotEmpty => libc::ENOTEMPTY,
        StoreError::Name => libc::EINVAL,
        StoreError::Host(error) => {
            tracing::error!("the space's memory: {error}");
            libc::EIO
        }
    };
    io::Error::from_raw_os_error(number)
}

/// Whether a file that is opened with these flags of `open` may be written.
pub(crate) fn writes(flags: u32) -> bool {
    flags & libc::O_ACCMODE.unsigned_abs() != libc::O_RDONLY.unsigned_abs()
}

/// A length of no more than a request's.
pub(crate) fn in_memory(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Write so many zeros to the guest.
pub(crate) fn zeros(to: &mut dyn ZeroCopyWriter, length: usize) -> io::Result<usize> {
    let mut left = length;
    while left > 0 {
        let step = ZEROS.get(..left).unwrap_or(&ZEROS);
        Write::write_all(to, step)?;
        left -= step.len();
    }
    Ok(length)
}

/// What `stat` says of a file or folder.
pub(crate) fn status(store: &Store, number: u64, node: &Node) -> stat64 {
    let attributes = &node.attributes;
    let (kind, links) = match (node.is_folder(), node.is_linked()) {
        (true, _) => (libc::S_IFDIR, 2),
        (false, linked) => (libc::S_IFREG, u64::from(linked)),
    };
    let (size, slots) = node
        .content()
        .map_or((0, 0), |content| (content.size(), content.slots() as u64));
    let slot_bytes = store.slots().slot_bytes();
    let mut answer = Entry::default().attr;
    answer.st_ino = number;
    answer.st_mode = kind | attributes.mode;
    answer.st_nlink = links;
    answer.st_uid = attributes.user;
    answer.st_gid = attributes.group;
    answer.st_size = i64::try_from(size).unwrap_or(i64::MAX);
    answer.st_blksize = i64::try_from(slot_bytes).unwrap_or(4096);
    answer.st_blocks = i64::try_from(slots * (slot_bytes / 512)).unwrap_or(i64::MAX);
    let seconds = i64::try_from(attributes.modified.as_secs()).unwrap_or(i64::MAX);
    let parts = i64::from(attributes.modified.subsec_nanos());
    (answer.st_mtime, answer.st_mtime_nsec) = (seconds, parts);
    (answer.st_ctime, answer.st_ctime_nsec) = (seconds, parts);
    (answer.st_atime, answer.st_atime_nsec) = (seconds, parts);
    answer
}

/// Change attributes as `setattr` says.
pub(crate) fn change(attributes: &mut Attributes, wanted: &stat64, valid: SetattrValid) {
    if valid.contains(SetattrValid::MODE) {
        attributes.mode = wanted.st_mode & 0o7777;
    }
    if valid.contains(SetattrValid::UID) {
        attributes.user = wanted.st_uid;
    }
    if valid.contains(SetattrValid::GID) {
        attributes.group = wanted.st_gid;
    }
    if valid.contains(SetattrValid::MTIME_NOW) {
        attributes.modified = now();
    } else if valid.contains(SetattrValid::MTIME) {
        let seconds = u64::try_from(wanted.st_mtime).unwrap_or(0);
        let parts = u32::try_from(wanted.st_mtime_nsec).unwrap_or(0);
        attributes.modified =
            Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(parts)));
    }
}
