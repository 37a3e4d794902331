//! What the supervisor and a data plane say to each other.
//!
//! The data plane of a network reaches for nothing itself: every socket, tap and event
//! descriptor it uses comes to it as an [`Order`] with a descriptor attached, and everything
//! the supervisor knows about it came back as an [`Event`]. Both travel as JSON datagrams over
//! one `SOCK_SEQPACKET` socket pair ([`ControlSocket`]), so a data plane is a sandboxed process
//! for users and a thread for tests without either side noticing.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::guard::Rules;
use crate::mac::Mac;

/// Largest encoded order or event, in bytes. Names are limited to [`MAX_NAME`], so every
/// message of the protocol fits.
pub const MAX_DATAGRAM: usize = 16 * 1024;

/// Longest port or network name, in bytes.
pub const MAX_NAME: usize = 64;

/// A port's number inside its network. The supervisor chooses it and never reuses one that is
/// still attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u16);

/// Supervisor to data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start serving a VM's NIC. Carries one descriptor: the connected vhost-user socket.
    /// Answered by [`Event::Detached`] at once when the network is full.
    Attach {
        /// The number the port will be known by.
        port: PortId,
        /// Name for log lines, at most [`MAX_NAME`] bytes.
        name: String,
    },
    /// Start serving an uplink. Carries one descriptor: a tap opened with `IFF_VNET_HDR`.
    AttachUplink {
        /// The number the uplink will be known by.
        port: PortId,
        /// Name for log lines, at most [`MAX_NAME`] bytes.
        name: String,
    },
    /// Stop serving a port or uplink; answered by [`Event::Detached`].
    Detach {
        /// Which one.
        port: PortId,
    },
    /// What a port may send and receive, in place of what was said before. In force at once;
    /// kept for the number, whether it is attached or not.
    SetRules {
        /// Which one.
        port: PortId,
        /// Its rules.
        rules: Box<Rules>,
    },
    /// Pin a MAC address to a port: it is never learnt elsewhere and never ages.
    /// An entry for a port that is not attached is kept and used once it is.
    SetResidency {
        /// The resident's address.
        mac: Mac,
        /// In which VLAN; 0 where there are none.
        #[serde(default)]
        vlan: u16,
        /// Where it lives.
        port: PortId,
    },
    /// Undo [`Order::SetResidency`].
    ClearResidency {
        /// The resident's address.
        mac: Mac,
        /// In which VLAN; 0 where there are none.
        #[serde(default)]
        vlan: u16,
    },
    /// Whether frames of multicast groups go to those alone who asked for them; they do not unless
    /// it is said.
    SetSnooping {
        /// They do.
        on: bool,
    },
    /// How long the frames of a stream may gather, in place of
    /// [`GATHER`](crate::limits::GATHER).
    SetGather {
        /// Microseconds, at most [`MAX_GATHER_US`](crate::limits::MAX_GATHER_US); 0 for never.
        micros: u32,
    },
    /// Ask for one [`Event::Report`] per attached port, then [`Event::ReportEnd`].
    Report,
    /// Detach everything and return.
    Stop,
}

/// Why a port is no longer served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The supervisor asked for it.
    Asked,
    /// The front-end closed its socket: the VM stopped or is restarting.
    Gone,
    /// The guest or its front-end broke the rules; the text says which and how. The port must
    /// be quarantined before another connection is accepted for it.
    Fault(String),
    /// The host could not serve it (out of memory or descriptors, network full).
    Host(String),
}

/// Data plane to supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The guest's driver has started both rings of the first queue pair.
    Running {
        /// Which port.
        port: PortId,
    },
    /// The port is no longer served; its descriptors are closed and its memory unmapped.
    Detached {
        /// Which port.
        port: PortId,
        /// Why.
        reason: Reason,
        /// Its counters at the end.
        counters: Box<Counters>,
    },
    /// One port's state, in answer to [`Order::Report`].
    Report(Box<PortReport>),
    /// The end of a report, with the figures that belong to no port.
    ReportEnd(WorkerReport),
}

/// A port's state as the data plane sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// Number of the port.
    pub port: u16,
    /// Both rings of the first queue pair are running.
    pub running: bool,
    /// Writes into the guest's memory are logged: it migrates.
    pub logging: bool,
    /// Virtio features the guest negotiated, as the spec numbers them; 0 for an uplink.
    pub features: u64,
    /// MTU announced by the front-end, 0 when it announced none.
    pub mtu: u16,
    /// MAC addresses learnt on this port or pinned to it.
    pub residents: u32,
    /// It goes on sending more to everybody than it may.
    pub storm: bool,
    /// Running totals since the port was attached.
    pub counters: Counters,
    /// Whom it sent to, at most [`MAX_PEERS`](crate::limits::MAX_PEERS) ports.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// What a port sent to another since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Number of the other port.
    pub port: u16,
    /// Frames.
    pub frames: u64,
    /// Their bytes, without the virtio-net header.
    pub bytes: u64,
}

/// Running totals of one port. "Received" and "sent" are seen from the guest: a frame the guest
/// transmitted counts as `tx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames taken from the guest, the lost ones included.
    pub tx_frames: u64,
    /// Their bytes, without the virtio-net header.
    pub tx_bytes: u64,
    /// Frames delivered to the guest.
    pub rx_frames: u64,
    /// Their bytes, without the virtio-net header.
    pub rx_bytes: u64,
    /// Notifications received from the guest (kicks).
    pub kicks: u64,
    /// Notifications sent to the guest (calls).
    pub calls: u64,
    /// Frames that waited because a receiver had no room.
    pub held: u64,
    /// Times frames were left in the port's rings because it had sent what it may for now.
    pub limited: u64,
    /// Frames it has sent to a group without members, or to routers where there are none: no loss.
    pub unheard: u64,
    /// Frames that were split into segments because a receiver had not negotiated them whole.
    pub segmented: u64,
    /// Frames whose checksum was filled in because a receiver had not negotiated partial ones.
    pub checksummed: u64,
    /// Frames lost, by reason.
    pub drops: Drops,
}

/// Define [`Drops`] and [`Loss`] from one list, so that a new reason is written down once.
macro_rules! losses {
    ($($(#[$doc:meta])* $field:ident $loss:ident,)*) => {
        /// Frames lost, by reason; counted at the port that sent them unless said otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Drops {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// Why a frame was lost; each has its counter in [`Drops`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss {
            $($(#[$doc])* $loss,)*
        }

        impl Drops {
            /// Count one lost frame.
            pub fn count(&mut self, loss: Loss) {
                let counter = match loss {
                    $(Loss::$loss => &mut self.$field,)*
                };
                *counter += 1;
            }

            /// Every counter and its name.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            /// The sum of two sets of counters, whatever they hold.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field.saturating_add(other.$field),)* }
            }
        }
    };
}

losses! {
    /// Sent to a neighbour that took no buffers for longer than the hold limit.
    receiver_stuck ReceiverStuck,
    /// Flooded or uplink frames the receiver had no room for; counted at the receiver.
    receiver_full ReceiverFull,
    /// The receiver's buffers are too small for the frame; counted at the receiver.
    receiver_small ReceiverSmall,
    /// The receiver is not running.
    receiver_down ReceiverDown,
    /// Set aside for a receiver without room when the sender left.
    sender_gone SenderGone,
    /// Shorter than an Ethernet header or longer than a frame can be.
    bad_length BadLength,
    /// The destination is the port the frame came from.
    hairpin Hairpin,
    /// The receiver cannot take such a frame and it cannot be translated.
    untranslatable Untranslatable,
    /// The uplink's kernel queue was full or refused the frame.
    uplink Uplink,
    /// Of a VLAN that the port, or the receiver, is not in; or with tags it may not send.
    vlan Vlan,
    /// Its source address is none of the port's.
    mac_spoofed MacSpoofed,
    /// ARP that claims an address which is none of the port's.
    arp_spoofed ArpSpoofed,
    /// An IP source address which is none of the port's.
    ip_spoofed IpSpoofed,
    /// Neighbour discovery that claims an address which is none of the port's.
    nd_spoofed NdSpoofed,
    /// A router advertisement or a DHCP server's answer from a port that may not give it.
    rogue_service RogueService,
    /// Nobody can tell whom it speaks as, and the port may not speak as everybody.
    not_understood NotUnderstood,
    /// Between ports that may not talk to each other.
    private Private,
    /// Over what the receiver may receive; counted at the receiver.
    receive_limit ReceiveLimit,
    /// Broadcast, over what the port may send of it.
    broadcast_limit BroadcastLimit,
    /// Multicast to everybody, over what the port may send of it.
    multicast_limit MulticastLimit,
    /// To an address that is not known, over what the port may send of it.
    unknown_limit UnknownLimit,
}

impl Counters {
    /// The sum of two sets of counters, whatever they hold.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        // Every field is named, so that a new counter cannot be forgotten here.
        Self {
            tx_frames: self.tx_frames.saturating_add(other.tx_frames),
            tx_bytes: self.tx_bytes.saturating_add(other.tx_bytes),
            rx_frames: self.rx_frames.saturating_add(other.rx_frames),
            rx_bytes: self.rx_bytes.saturating_add(other.rx_bytes),
            kicks: self.kicks.saturating_add(other.kicks),
            calls: self.calls.saturating_add(other.calls),
            held: self.held.saturating_add(other.held),
            limited: self.limited.saturating_add(other.limited),
            unheard: self.unheard.saturating_add(other.unheard),
            segmented: self.segmented.saturating_add(other.segmented),
            checksummed: self.checksummed.saturating_add(other.checksummed),
            drops: self.drops.plus(&other.drops),
        }
    }
}

impl Drops {
    /// Frames lost, for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        let counts = self.each().into_iter().map(|(_, count)| count);
        counts.fold(0, u64::saturating_add)
    }
}

/// Figures of the worker itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Times the worker came back from sleep.
    pub wakeups: u64,
    /// Time-stamp counter ticks spent in rounds that moved at least one frame. Zero on
    /// machines without a time-stamp counter.
    pub busy_ticks: u64,
    /// Frames moved in those rounds (each frame once, at its sender).
    pub busy_frames: u64,
    /// Time-stamp counter ticks since the worker started.
    pub elapsed_ticks: u64,
    /// Entries in the residency table.
    pub residents: u32,
}

/// One end of the conversation.
#[derive(Debug)]
pub struct ControlSocket(OwnedFd);

impl ControlSocket {
    /// A connected pair: one end for the supervisor, one for the data plane. Both are
    /// non-blocking.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Send one message, with a descriptor where the message carries one.
    ///
    /// # Errors
    /// `WouldBlock` when the other side is behind; any other error means it is gone.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_DATAGRAM {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "control message of {} bytes exceeds {MAX_DATAGRAM}",
                    bytes.len()
                ),
            ));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds;
        if let Some(fd) = fd {
            fds = [fd];
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        // syscalls: sendmsg
        rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Receive one message. `Ok(None)` means that the other side is gone.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; `InvalidData` when the message cannot be read.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_DATAGRAM];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        // syscalls: recvmsg
        let got = match rustix::net::recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            // Gone without having read everything.
            Err(Errno::CONNRESET) => return Ok(None),
            got => got?,
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        let mut fd = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                fd = fds.next();
            }
        }
        let message = bytes
            .get(..got.bytes)
            .ok_or(io::ErrorKind::InvalidData)
            .map_err(io::Error::from)
            .and_then(|body| serde_json::from_slice(body).map_err(io::Error::from))?;
        Ok(Some((message, fd)))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl TryFrom<OwnedFd> for ControlSocket {
    type Error = io::Error;

    /// An end that was handed over by another process.
    ///
    /// # Errors
    /// The descriptor is no connected [`ControlSocket`].
    fn try_from(fd: OwnedFd) -> io::Result<Self> {
        rustix::net::getpeername(&fd)?;
        if rustix::net::sockopt::socket_type(&fd)? != SocketType::SEQPACKET {
            return Err(Errno::PROTOTYPE.into());
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }
}

impl From<ControlSocket> for OwnedFd {
    fn from(socket: ControlSocket) -> Self {
        socket.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_with_its_descriptor() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let (extra, _keep) = ControlSocket::pair().unwrap();
        let order = Order::Attach {
            port: PortId(7),
            name: "web".into(),
        };
        ours.send(&order, Some(extra.as_fd())).unwrap();
        let (seen, fd) = theirs.receive::<Order>().unwrap().unwrap();
        assert_eq!(seen, order);
        assert!(fd.is_some());
    }

    #[test]
    fn every_reason_has_its_counter() {
        let mut drops = Drops::default();
        drops.count(Loss::Hairpin);
        drops.count(Loss::Uplink);
        let once = drops.each().into_iter().filter(|(_, count)| *count == 1);
        assert_eq!(once.count(), 2);
        assert_eq!(drops.plus(&drops).total(), 4);
        drops.uplink = u64::MAX;
        assert_eq!(drops.plus(&drops).total(), u64::MAX);
    }

    #[test]
    fn a_closed_peer_is_told_apart_from_an_idle_one() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let idle = theirs.receive::<Order>().unwrap_err();
        assert_eq!(idle.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(theirs.receive::<Order>().unwrap().is_none());
    }

    #[test]
    fn a_peer_that_is_gone_without_having_read_is_gone_all_the_same() {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        theirs.send(&Order::Report, None).unwrap();
        drop(ours);
        assert!(theirs.receive::<Order>().unwrap().is_none());
    }
}
