//! The FUSE file system: executes the guest's requests on the store.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{CreateIn, stat64, statvfs64};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, FsOptions, OpenOptions, SetattrValid, ZeroCopyReader,
    ZeroCopyWriter,
};
use space::store::{Attributes, Extent, Store, StoreError};

use crate::fuse_types::{
    apply_setattr, fill_statvfs, open_file, opens_for_writing, stat_of, to_errno, to_usize,
    write_zeros,
};
use crate::push_status_file;
use crate::space_state::{SpaceState, now};

/// How long the guest's kernel may cache entries and attributes. Unless files are pushed, only the guest changes its file
/// system, so its cache stays valid.
const CACHE_TIMEOUT: Duration = Duration::from_secs(3600);

/// `RENAME_NOREPLACE`; the other flags of `renameat2` are not served.
const NO_REPLACE: u32 = 1;

/// The file system that the VM mounts.
#[derive(Debug)]
pub(crate) struct SpaceFileSystem {
    state: Arc<SpaceState>,
    /// Whether the last write found no free slots. The device then keeps the request unanswered and retries it.
    found_full: AtomicBool,
}

impl SpaceFileSystem {
    pub(crate) fn new(state: Arc<SpaceState>) -> Self {
        Self {
            state,
            found_full: AtomicBool::new(false),
        }
    }

    /// Returns whether the previous request found the space full, and clears the flag.
    pub(crate) fn take_found_full(&self) -> bool {
        self.found_full.swap(false, Ordering::Relaxed)
    }

    fn entry(&self, store: &Store, inode: u64) -> Result<Entry, StoreError> {
        Ok(Entry {
            inode,
            generation: 0,
            attr: stat_of(store, inode, store.node(inode)?),
            attr_flags: 0,
            attr_timeout: self.cache_timeout(),
            entry_timeout: self.cache_timeout(),
        })
    }

    fn cache_timeout(&self) -> Duration {
        match self.state.outbox.is_enabled() {
            true => Duration::ZERO,
            false => CACHE_TIMEOUT,
        }
    }

    fn make(
        &self,
        store: &mut Store,
        context: &Context,
        parent: u64,
        name: &CStr,
        (is_directory, mode): (bool, u32),
    ) -> Result<u64, StoreError> {
        let attributes = Attributes {
            mode: mode & 0o7777,
            uid: context.uid,
            gid: context.gid,
            modified: now(),
        };
        store.create(parent, name.to_bytes(), is_directory, attributes)
    }

    fn remove(&self, parent: u64, name: &CStr, is_directory: bool) -> io::Result<()> {
        let mut store = self.state.store();
        store
            .remove(parent, name.to_bytes(), is_directory)
            .map_err(to_errno)
    }
}

/// The bytes of a write are in slots when the write is answered, and nothing more durable exists. So `flush`, `fsync` and
/// `fsyncdir` keep the library's default, which answers `ENOSYS`: the guest's kernel treats that as success and does not
/// send these requests again. This saves one request per close, of which a shell makes many.
impl FileSystem for SpaceFileSystem {
    type Inode = u64;
    type Handle = u64;

    /// Starts a new session. All handles of the previous session are closed.
    fn init(&self, _capable: FsOptions) -> io::Result<FsOptions> {
        self.state.store().end_session();
        // Not `WRITEBACK_CACHE`: a write is answered when its bytes are in slots, not in the guest's page cache.
        // Not `ATOMIC_O_TRUNC`: with it the guest's kernel drops the attributes of a file that it just created and
        // requests them again. Without it, the kernel truncates by a separate request after it opened the file for
        // writing, so no client can fetch the file while it is empty.
        Ok(FsOptions::BIG_WRITES | FsOptions::MAX_PAGES | FsOptions::PARALLEL_DIROPS)
    }

    fn destroy(&self) {
        self.state.store().end_session();
    }

    fn lookup(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        if push_status_file::is_looked_up(&self.state, parent, name.to_bytes()) {
            return Ok(push_status_file::entry());
        }
        let store = self.state.store();
        let found = store.look_up(parent, name.to_bytes());
        found
            .and_then(|inode| self.entry(&store, inode))
            .map_err(to_errno)
    }

    fn getattr(&self, _: &Context, inode: u64, _: Option<u64>) -> io::Result<(stat64, Duration)> {
        if inode == push_status_file::INODE {
            return Ok((push_status_file::stat(), Duration::ZERO));
        }
        let store = self.state.store();
        let node = store.node(inode).map_err(to_errno)?;
        Ok((stat_of(&store, inode, node), self.cache_timeout()))
    }

    fn setattr(
        &self,
        _: &Context,
        inode: u64,
        requested: stat64,
        _: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let mut store = self.state.store();
        if valid.contains(SetattrValid::SIZE) {
            let size =
                u64::try_from(requested.st_size).map_err(|_| to_errno(StoreError::TooLarge))?;
            store.truncate(inode, size, now()).map_err(to_errno)?;
        }
        let change = |attributes: &mut Attributes| apply_setattr(attributes, &requested, valid);
        store.set_attributes(inode, change).map_err(to_errno)?;
        self.state.note_change();
        let node = store.node(inode).map_err(to_errno)?;
        Ok((stat_of(&store, inode, node), self.cache_timeout()))
    }

    fn mknod(
        &self,
        context: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        _: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let mut store = self.state.store();
        let made = self.make(&mut store, context, parent, name, (false, mode & !umask));
        made.and_then(|inode| self.entry(&store, inode))
            .map_err(to_errno)
    }

    fn mkdir(
        &self,
        context: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        let mut store = self.state.store();
        let made = self.make(&mut store, context, parent, name, (true, mode & !umask));
        made.and_then(|inode| self.entry(&store, inode))
            .map_err(to_errno)
    }

    fn symlink(&self, _: &Context, _: &CStr, _: u64, _: &CStr) -> io::Result<Entry> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    fn link(&self, _: &Context, _: u64, _: u64, _: &CStr) -> io::Result<Entry> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    fn unlink(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(
        &self,
        _: &Context,
        from: u64,
        name: &CStr,
        to: u64,
        new_name: &CStr,
        flags: u32,
    ) -> io::Result<()> {
        if flags & !NO_REPLACE != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut store = self.state.store();
        let (old, new) = ((from, name.to_bytes()), (to, new_name.to_bytes()));
        store
            .rename(old, new, flags & NO_REPLACE != 0)
            .map_err(to_errno)?;
        self.state.note_change();
        Ok(())
    }

    fn open(
        &self,
        _: &Context,
        inode: u64,
        flags: u32,
        _: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        let opens_for_writing = opens_for_writing(flags);
        if inode != push_status_file::INODE {
            open_file(&mut self.state.store(), inode, flags).map_err(to_errno)?;
        }
        Ok((
            Some(u64::from(opens_for_writing)),
            OpenOptions::DIRECT_IO,
            None,
        ))
    }

    fn create(
        &self,
        context: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        let opens_for_writing = opens_for_writing(args.flags);
        let mut store = self.state.store();
        let mode = args.mode & !args.umask;
        let inode = match store.look_up(parent, name.to_bytes()) {
            Ok(inode) if args.flags & libc::O_EXCL.unsigned_abs() == 0 => Ok(inode),
            Ok(_) => Err(StoreError::AlreadyExists),
            Err(_) => self.make(&mut store, context, parent, name, (false, mode)),
        };
        let inode = inode.map_err(to_errno)?;
        open_file(&mut store, inode, args.flags).map_err(to_errno)?;
        let entry = self.entry(&store, inode).map_err(to_errno)?;
        let handle = Some(u64::from(opens_for_writing));
        Ok((entry, handle, OpenOptions::DIRECT_IO, None))
    }

    fn read(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        to: &mut dyn ZeroCopyWriter,
        size: u32,
        offset: u64,
        _: Option<u64>,
        _: u32,
    ) -> io::Result<usize> {
        if inode == push_status_file::INODE {
            return push_status_file::read(&self.state, to, size, offset);
        }
        let store = self.state.store();
        let node = store.node(inode).map_err(to_errno)?;
        let content = node
            .content()
            .ok_or(StoreError::IsADirectory)
            .map_err(to_errno)?;
        let extents = content.read(store.slots().slot_bytes(), offset, u64::from(size));
        // syscalls: fcntl preadv pread64
        let mut file = self.state.slot_file().file().try_clone()?;
        let mut done = 0;
        for extent in extents {
            done += match extent {
                Extent::Bytes { at, length } => {
                    let length = to_usize(length);
                    to.write_all_from(&mut file, length, at)?;
                    length
                }
                Extent::Zeros { length } => write_zeros(to, to_usize(length))?,
            };
        }
        Ok(done)
    }

    fn write(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        from: &mut dyn ZeroCopyReader,
        size: u32,
        offset: u64,
        _: Option<u64>,
        _: bool,
        _: u32,
        _: u32,
    ) -> io::Result<usize> {
        let mut store = self.state.store();
        let ranges = store.write(inode, offset, u64::from(size), now());
        let ranges = ranges.map_err(|error| {
            let found_full = matches!(error, StoreError::Full);
            self.found_full.store(found_full, Ordering::Relaxed);
            to_errno(error)
        })?;
        // syscalls: fcntl pwritev pwrite64
        let mut file = self.state.slot_file().file().try_clone()?;
        for (at, length) in ranges {
            from.read_exact_to(&mut file, to_usize(length), at)?;
        }
        Ok(size as usize)
    }

    fn release(
        &self,
        _: &Context,
        inode: u64,
        _: u32,
        handle: u64,
        _: bool,
        _: bool,
        _: Option<u64>,
    ) -> io::Result<()> {
        self.state.store().close(inode, handle != 0);
        self.state.note_change();
        Ok(())
    }

    fn statfs(&self, context: &Context, inode: u64) -> io::Result<statvfs64> {
        // The default fills in the fields that `fill_statvfs` does not set.
        let mut answer = Defaults.statfs(context, inode)?;
        fill_statvfs(&mut answer, &self.state.store());
        Ok(answer)
    }

    fn opendir(&self, _: &Context, inode: u64, _: u32) -> io::Result<(Option<u64>, OpenOptions)> {
        self.state.store().open(inode, false).map_err(to_errno)?;
        Ok((Some(0), OpenOptions::empty()))
    }

    fn readdir(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        _: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let store = self.state.store();
        for (child, name) in store.list(inode, offset).map_err(to_errno)? {
            let is_directory = store.node(child).map_err(to_errno)?.is_directory();
            let entry = DirEntry {
                ino: child,
                offset: child,
                type_: u32::from(if is_directory {
                    libc::DT_DIR
                } else {
                    libc::DT_REG
                }),
                name,
            };
            if add(entry)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, _: &Context, inode: u64, _: u32, _: u64) -> io::Result<()> {
        self.state.store().close(inode, false);
        Ok(())
    }
}

/// A file system with the library's default answers.
struct Defaults;

impl FileSystem for Defaults {
    type Inode = u64;
    type Handle = u64;
}
