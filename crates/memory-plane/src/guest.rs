//! What is said to the guest's kernel and by it, in its own terms: errors, flags, status.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{stat64, statvfs64};
use fuse_backend_rs::api::filesystem::{Entry, SetattrValid, ZeroCopyWriter};
use space::store::{Attributes, MAX_NAME, MAX_NODES, Node, Store, StoreError};

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

/// Open a file as these flags of `open` say.
pub(crate) fn open(store: &mut Store, number: u64, flags: u32) -> Result<(), StoreError> {
    let writes = writes(flags);
    store.open(number, writes)?;
    if writes && flags & libc::O_TRUNC.unsigned_abs() != 0 {
        store.truncate(number, 0, now())?;
    }
    Ok(())
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

/// What `df` says of a space.
pub(crate) fn fill(answer: &mut statvfs64, store: &Store) {
    let slots = store.slots();
    let (credit, used) = (u64::from(slots.credit()), u64::from(slots.used()));
    let nodes = store.fill().nodes;
    answer.f_bsize = slots.slot_bytes();
    answer.f_frsize = slots.slot_bytes();
    answer.f_blocks = credit;
    answer.f_bfree = credit.saturating_sub(used);
    answer.f_bavail = answer.f_bfree;
    answer.f_files = MAX_NODES as u64;
    answer.f_ffree = (MAX_NODES - nodes.min(MAX_NODES)) as u64;
    answer.f_favail = answer.f_ffree;
    answer.f_namemax = MAX_NAME as u64;
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
