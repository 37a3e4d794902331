//! Conversions between the store's types and those of FUSE: error numbers, open flags, `stat`, `statvfs` and `setattr`.

use std::io::{self, Write};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{stat64, statvfs64};
use fuse_backend_rs::api::filesystem::{Entry, SetattrValid, ZeroCopyWriter};
use space::store::{Attributes, MAX_NAME, MAX_NODES, Node, Store, StoreError};

use crate::space_state::now;

/// The zeros that one step writes to the guest.
const ZEROS: [u8; 4096] = [0; 4096];

/// Returns the error number that the guest receives.
pub(crate) fn to_errno(error: StoreError) -> io::Error {
    let errno = match error {
        StoreError::Full => libc::ENOSPC,
        StoreError::TooLarge => libc::EFBIG,
        StoreError::TooMany => libc::EDQUOT,
        StoreError::NotFound => libc::ENOENT,
        StoreError::AlreadyExists => libc::EEXIST,
        StoreError::NotADirectory => libc::ENOTDIR,
        StoreError::IsADirectory => libc::EISDIR,
        StoreError::NotEmpty => libc::ENOTEMPTY,
        StoreError::InvalidName => libc::EINVAL,
        StoreError::HostMemory(error) => {
            tracing::error!("cannot use the space's memory: {error}");
            libc::EIO
        }
    };
    io::Error::from_raw_os_error(errno)
}

/// Returns whether these flags of `open` open a file for writing.
pub(crate) fn opens_for_writing(flags: u32) -> bool {
    flags & libc::O_ACCMODE.unsigned_abs() != libc::O_RDONLY.unsigned_abs()
}

/// Opens a file with these flags of `open`, and truncates it if they ask for that.
pub(crate) fn open_file(store: &mut Store, inode: u64, flags: u32) -> Result<(), StoreError> {
    let opens_for_writing = opens_for_writing(flags);
    store.open(inode, opens_for_writing)?;
    if opens_for_writing && flags & libc::O_TRUNC.unsigned_abs() != 0 {
        store.truncate(inode, 0, now())?;
    }
    Ok(())
}

/// Converts a length, which is at most that of a request.
pub(crate) fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Writes `length` zeros to the guest.
pub(crate) fn write_zeros(to: &mut dyn ZeroCopyWriter, length: usize) -> io::Result<usize> {
    let mut left = length;
    while left > 0 {
        let step = ZEROS.get(..left).unwrap_or(&ZEROS);
        Write::write_all(to, step)?;
        left -= step.len();
    }
    Ok(length)
}

/// Returns the `stat` of a file or directory.
pub(crate) fn stat_of(store: &Store, inode: u64, node: &Node) -> stat64 {
    let attributes = &node.attributes;
    let (file_type, links) = match (node.is_directory(), node.is_linked()) {
        (true, _) => (libc::S_IFDIR, 2),
        (false, linked) => (libc::S_IFREG, u64::from(linked)),
    };
    let (size, slots) = node
        .content()
        .map_or((0, 0), |content| (content.size(), content.slots() as u64));
    let slot_bytes = store.slots().slot_bytes();
    let mut stat = Entry::default().attr;
    stat.st_ino = inode;
    stat.st_mode = file_type | attributes.mode;
    stat.st_nlink = links;
    stat.st_uid = attributes.uid;
    stat.st_gid = attributes.gid;
    stat.st_size = i64::try_from(size).unwrap_or(i64::MAX);
    stat.st_blksize = i64::try_from(slot_bytes).unwrap_or(4096);
    stat.st_blocks = i64::try_from(slots * (slot_bytes / 512)).unwrap_or(i64::MAX);
    let seconds = i64::try_from(attributes.modified.as_secs()).unwrap_or(i64::MAX);
    let nanoseconds = i64::from(attributes.modified.subsec_nanos());
    (stat.st_mtime, stat.st_mtime_nsec) = (seconds, nanoseconds);
    (stat.st_ctime, stat.st_ctime_nsec) = (seconds, nanoseconds);
    (stat.st_atime, stat.st_atime_nsec) = (seconds, nanoseconds);
    stat
}

/// Fills in the `statvfs` of a space, for `df`.
pub(crate) fn fill_statvfs(stat: &mut statvfs64, store: &Store) {
    let slots = store.slots();
    let (credit, used) = (u64::from(slots.credit()), u64::from(slots.used()));
    let nodes = store.usage().nodes;
    stat.f_bsize = slots.slot_bytes();
    stat.f_frsize = slots.slot_bytes();
    stat.f_blocks = credit;
    stat.f_bfree = credit.saturating_sub(used);
    stat.f_bavail = stat.f_bfree;
    stat.f_files = MAX_NODES as u64;
    stat.f_ffree = (MAX_NODES - nodes.min(MAX_NODES)) as u64;
    stat.f_favail = stat.f_ffree;
    stat.f_namemax = MAX_NAME as u64;
}

/// Applies a `setattr` request to the attributes.
pub(crate) fn apply_setattr(attributes: &mut Attributes, requested: &stat64, valid: SetattrValid) {
    if valid.contains(SetattrValid::MODE) {
        attributes.mode = requested.st_mode & 0o7777;
    }
    if valid.contains(SetattrValid::UID) {
        attributes.uid = requested.st_uid;
    }
    if valid.contains(SetattrValid::GID) {
        attributes.gid = requested.st_gid;
    }
    if valid.contains(SetattrValid::MTIME_NOW) {
        attributes.modified = now();
    } else if valid.contains(SetattrValid::MTIME) {
        let seconds = u64::try_from(requested.st_mtime).unwrap_or(0);
        let nanoseconds = u32::try_from(requested.st_mtime_nsec).unwrap_or(0);
        attributes.modified = Duration::from_secs(seconds)
            .saturating_add(Duration::from_nanos(u64::from(nanoseconds)));
    }
}
