//! An interface used by AF_XDP (Documentation/networking/af_xdp.rst): its frames bypass the host's network
//! stack and go through memory that a data plane shares with the kernel.
//!
//! An eBPF program of six instructions redirects frames of the interface's first receive queue to the socket;
//! frames of other queues go to the host. The program runs in the generic XDP mode of the kernel, which every
//! interface supports and which copies frames. The kernel removes program and map when their descriptors are
//! closed, so a daemon that dies leaves nothing behind.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use switch::control::{XDP_CHUNK, XDP_CHUNKS, XDP_ENTRIES, XdpLayout, XdpRing};

use super::error::{UplinkError, refused};
use super::packet;

/// Bytes of the memory for frames.
const MEMORY: u64 = XDP_CHUNK as u64 * XDP_CHUNKS as u64;

// linux/bpf.h
const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_PROG_LOAD: u32 = 5;
const BPF_LINK_CREATE: u32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_PSEUDO_MAP_FD: u8 = 1;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// `XDP_FLAGS_SKB_MODE` (linux/if_link.h): the generic mode.
const GENERIC: u32 = 1 << 1;

/// Number of descriptors of [`open`] that the supervisor passes to a data plane. The supervisor
/// keeps the others.
pub(crate) const PASSED_FDS: usize = 2;

/// Opens the interface `name`. Returns a socket, its memory for frames, and the descriptors that
/// redirect frames to the socket.
pub(super) fn open(name: &str) -> Result<Vec<OwnedFd>, UplinkError> {
    let because = |step| refused(name, step);
    let socket = new().map_err(because("open an AF_XDP socket"))?;
    let (listener, index) = packet::set_promiscuous(name)?;
    let memory = register(&socket).map_err(because("register memory for frames"))?;
    rings(&socket).map_err(because("create rings"))?;
    let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, 0);
    bind(&socket, &address).map_err(because("bind to its first queue"))?;
    let map = map(&socket).map_err(because("create a map of sockets"))?;
    let program = program(&map).map_err(because("load an XDP program"))?;
    let link =
        link(&program, index).map_err(because("attach an XDP program to it (generic XDP)"))?;
    Ok(vec![socket, memory, link, listener])
}

/// Asks the kernel for the layout of its rings.
pub(super) fn layout() -> Result<XdpLayout, Errno> {
    let offsets = sockopt::xdp_mmap_offsets(&new()?)?;
    Ok(XdpLayout {
        rx: ring(&offsets.rx)?,
        tx: ring(&offsets.tx)?,
        fill: ring(&offsets.fr)?,
        completion: ring(&offsets.cr)?,
    })
}

fn ring(offsets: &XdpRingOffset) -> Result<XdpRing, Errno> {
    let small = |offset| u32::try_from(offset).map_err(|_| Errno::OVERFLOW);
    Ok(XdpRing([
        small(offsets.producer)?,
        small(offsets.consumer)?,
        small(offsets.desc)?,
    ]))
}

fn new() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
}

/// Registers the memory for frames with the socket. The memory is a file, so that other processes
/// can map it.
fn register(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let file = memfd_create("frames", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, MEMORY)?;
    let length = usize::try_from(MEMORY).map_err(|_| Errno::OVERFLOW)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { mmap(ptr::null_mut(), length, access, MapFlags::SHARED, &file, 0)? };
    let region = XdpUmemReg {
        addr: start as u64,
        len: MEMORY,
        chunk_size: XDP_CHUNK,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let registered = sockopt::set_xdp_umem_reg(socket, region);
    // SAFETY: this is the mapping made above, and no pointer leads into it: the kernel keeps the pages, not
    // the address.
    unsafe { munmap(start, length)? };
    registered.map(|()| file)
}

fn rings(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_xdp_umem_fill_ring_size(socket, XDP_ENTRIES)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, XDP_ENTRIES)?;
    sockopt::set_xdp_rx_ring_size(socket, XDP_ENTRIES)?;
    sockopt::set_xdp_tx_ring_size(socket, XDP_ENTRIES)
}

/// Creates the map from the number of a queue to its socket, with an entry for the first queue.
fn map(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Create {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    #[repr(C)]
    struct Update {
        map: i32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let create = Create {
        kind: BPF_MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        entries: 1,
    };
    let map = owned_fd(bpf(BPF_MAP_CREATE, &create)?);
    let (key, value) = (0_u32, socket.as_raw_fd());
    let update = Update {
        map: map.as_raw_fd(),
        padding: 0,
        key: ptr::from_ref(&key) as u64,
        value: ptr::from_ref(&value) as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &update)?;
    Ok(map)
}

/// An instruction (linux/bpf.h): the lower half of `registers` is the destination.
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

/// `return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS)`
fn program(map: &OwnedFd) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    let instruction = |code, registers, offset, number| Instruction {
        code,
        registers,
        offset,
        number,
    };
    let instructions = [
        // Load a word into register 2, from offset 16 of the structure that register 1 points to.
        instruction(0x61, 0x12, 16, 0),
        // Load the map into register 1. This instruction takes two slots.
        instruction(0x18, BPF_PSEUDO_MAP_FD << 4 | 1, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0),
        instruction(0xb7, 0x03, 0, XDP_PASS),
        instruction(0x85, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(0x95, 0, 0, 0),
    ];
    let load = Load {
        kind: BPF_PROG_TYPE_XDP,
        count: 6,
        instructions: instructions.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
    };
    bpf(BPF_PROG_LOAD, &load).map(owned_fd)
}

/// Attaches the program to the interface's incoming frames until the returned descriptor is closed.
fn link(program: &OwnedFd, index: u32) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Create {
        program: i32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let create = Create {
        program: program.as_raw_fd(),
        interface: index,
        attach_type: BPF_XDP,
        flags: GENERIC,
    };
    bpf(BPF_LINK_CREATE, &create).map(owned_fd)
}

/// Makes the system call `bpf`. Returns its result.
fn bpf<T>(command: u32, attributes: &T) -> Result<i32, Errno> {
    // SAFETY: the kernel reads the attributes, whose size is an argument, and the memory that they point to,
    // which the callers borrow for longer than the call. The kernel writes nothing.
    let said = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(said) {
        Ok(said) if said >= 0 => Ok(said),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

/// Returns the descriptor that a call has created.
fn owned_fd(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just returned the descriptor, and no other value owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
