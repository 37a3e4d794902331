//! The uplink's tap. Its frames carry the same virtio-net header as a guest's frames.
//!
//! Each descriptor is a queue. A tap that was created with one queue can have no others, and a tap that was
//! created with several (`IFF_MULTI_QUEUE`) cannot be opened as one with a single queue. So this module tries
//! both.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

// linux/if_tun.h
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<i32>(b'T', 216);
const TUNSETVNETLE: Opcode = opcode::write::<i32>(b'T', 220);
const IFF_TAP: u16 = 0x0002;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN`
const OFFLOADS: usize = 0x01 | 0x02 | 0x04 | 0x08;
/// `TUN_F_USO4 | TUN_F_USO6`, since Linux 6.2.
const OFFLOADS_UDP: usize = 0x20 | 0x40;

// linux/sockios.h, linux/if.h
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const IFF_UP: u16 = 0x1;
const IFNAMSIZ: usize = 16;

/// Bytes of the virtio-net header that a VIRTIO 1 guest uses.
const HEADER: i32 = 12;

/// `struct ifreq` with its `ifr_flags` member.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; IFNAMSIZ],
    flags: u16,
    rest: [u8; 22],
}

/// Why a tap could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    /// The tun driver is not loaded.
    #[error("cannot open /dev/net/tun: {0}; load the driver with `modprobe tun`, as root")]
    Driver(Errno),
    /// The daemon lacks the permission.
    #[error("the daemon may not use tap {name}; run it as root, or with CAP_NET_ADMIN")]
    Forbidden {
        /// The tap.
        name: String,
    },
    /// Another process uses the tap.
    #[error("tap {name} is in use by another process; stop that process, or choose another `tap`")]
    Busy {
        /// The tap.
        name: String,
    },
    /// The name belongs to another kind of interface.
    #[error(
        "interface {name} exists and is not a tap; choose another `tap`, or remove the interface with `ip link \
            delete {name}`"
    )]
    NotATap {
        /// The interface.
        name: String,
    },
    /// The kernel reported another error.
    #[error("tap {name}: the kernel refused to {step}: {source}")]
    Refused {
        /// The tap.
        name: String,
        /// The refused operation.
        step: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

/// Opens the tap `name` with one queue and sets its link up. Creates the tap if it does not exist. The kernel
/// removes a tap that was created here once the descriptor and all its duplicates are closed.
pub(crate) fn open(name: &str) -> Result<OwnedFd, TapError> {
    first(name, [0, IFF_MULTI_QUEUE]).map(|(tap, _)| tap)
}

/// Opens the tap `name` like [`open`], but with `count` queues; with one if the tap already existed
/// and has only one.
pub(super) fn open_queues(name: &str, count: usize) -> Result<Vec<OwnedFd>, TapError> {
    if count <= 1 {
        return Ok(vec![open(name)?]);
    }
    let (tap, kind) = first(name, [IFF_MULTI_QUEUE, 0])?;
    let mut queues = vec![tap];
    if kind == 0 {
        tracing::info!(
            "tap {name} has one queue, so only one of {count} workers reads it; `ip tuntap add {name} mode tap \
                multi_queue` creates a tap that can have more queues"
        );
        return Ok(queues);
    }
    for _ in 1..count {
        let next = driver()?;
        attach(&next, name, kind)?;
        queues.push(next);
    }
    Ok(queues)
}

/// Opens the first queue of a tap. Tries the kind `wanted` first, then the kind `other`, and
/// returns the kind that succeeded.
fn first(name: &str, [wanted, other]: [u16; 2]) -> Result<(OwnedFd, u16), TapError> {
    let refused = |step| {
        move |source| TapError::Refused {
            name: name.to_owned(),
            step,
            source,
        }
    };
    let tap = driver()?;
    let kind = match attach(&tap, name, wanted) {
        Err(TapError::NotATap { .. }) => attach(&tap, name, other).map(|()| other),
        attached => attached.map(|()| wanted),
    }?;
    set_header(&tap).map_err(refused("use 12 byte virtio headers"))?;
    set_offloads(&tap).map_err(refused("enable its offloads"))?;
    set_up(name).map_err(refused("set the link up"))?;
    Ok((tap, kind))
}

/// Opens a descriptor that is not yet a queue.
fn driver() -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(TapError::Driver)
}

fn request(name: &str, flags: u16) -> InterfaceFlags {
    let mut bytes = [0; IFNAMSIZ];
    // The last byte stays zero: the configuration limits names to 15 bytes.
    for (to, from) in bytes.iter_mut().take(IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from;
    }
    InterfaceFlags {
        name: bytes,
        flags,
        rest: [0; 22],
    }
}

fn attach(tap: &OwnedFd, name: &str, kind: u16) -> Result<(), TapError> {
    let mut interface = request(name, IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | kind);
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, and `InterfaceFlags` has its
    // layout and size (40 bytes on 64-bit machines).
    let done = unsafe {
        let call = Updater::<TUNSETIFF, InterfaceFlags>::new(&mut interface);
        ioctl(tap.as_fd(), call)
    };
    let name = || name.to_owned();
    done.map_err(|source| match source {
        Errno::PERM | Errno::ACCESS => TapError::Forbidden { name: name() },
        Errno::BUSY => TapError::Busy { name: name() },
        Errno::INVAL => TapError::NotATap { name: name() },
        source => TapError::Refused {
            name: name(),
            step: "open it",
            source,
        },
    })
}

fn set_header(tap: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: both calls read one `int`.
    unsafe {
        ioctl(tap.as_fd(), Setter::<TUNSETVNETHDRSZ, i32>::new(HEADER))?;
        ioctl(tap.as_fd(), Setter::<TUNSETVNETLE, i32>::new(1))
    }
}

fn set_offloads(tap: &OwnedFd) -> Result<(), Errno> {
    let set = |offloads| {
        // SAFETY: TUNSETOFFLOAD takes its argument as a number and touches no memory.
        unsafe {
            let call = IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads);
            ioctl(tap.as_fd(), call)
        }
    };
    set(OFFLOADS | OFFLOADS_UDP).or_else(|_| set(OFFLOADS))
}

fn set_up(name: &str) -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut interface = request(name, 0);
    // SAFETY: SIOCGIFFLAGS reads the name and writes the flags of one `struct ifreq`;
    // SIOCSIFFLAGS reads both. `InterfaceFlags` has its layout and size.
    unsafe {
        let get = Updater::<SIOCGIFFLAGS, InterfaceFlags>::new(&mut interface);
        ioctl(&socket, get)?;
        interface.flags |= IFF_UP;
        ioctl(
            &socket,
            Setter::<SIOCSIFFLAGS, InterfaceFlags>::new(interface),
        )
    }
}

const _: () = assert!(
    size_of::<InterfaceFlags>() == 40,
    "struct ifreq is 40 bytes"
);
