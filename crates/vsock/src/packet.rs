//! A checked packet, and why a packet of a guest is not one.

use crate::header::{Header, Operation, SHUTDOWN_BOTH, SocketType};
use crate::limits::MAX_PAYLOAD;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The CID of a guest, or of the host.
    pub cid: u32,
    /// The port.
    pub port: u32,
}

/// A packet whose header was checked. Payload is behind it only if its operation is
/// [`ReadWrite`](Operation::ReadWrite).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its sender.
    pub source: Address,
    /// Its receiver.
    pub destination: Address,
    /// Payload bytes, at most [`MAX_PAYLOAD`].
    pub length: u32,
    /// The socket type.
    pub kind: SocketType,
    /// The operation.
    pub operation: Operation,
    /// Flags; bits that no version of the specification has are zero.
    pub flags: u32,
    /// The sender's receive space for this connection.
    pub buf_alloc: u32,
    /// Bytes taken out of that space.
    pub fwd_cnt: u32,
}

/// Why a packet of a guest is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The chain is shorter than a header.
    #[error("the packet has fewer bytes than a header")]
    Short,
    /// 5.10.6.4.1: the source is not the guest's own CID. It is dropped without an answer, which would
    /// go to another guest.
    #[error("the source is not the guest's own CID")]
    Source,
    /// 5.10.4: the destination is reserved, or the guest itself.
    #[error("the destination is reserved, or the guest itself")]
    Destination,
    /// 5.10.6: no such operation.
    #[error("there is no such operation")]
    Operation,
    /// 5.10.6.5: no such type, or one that was not negotiated.
    #[error("there is no such socket type, or it was not negotiated")]
    SocketType,
    /// The payload is longer than the chain or than the largest packet, or the operation has none.
    #[error("the length does not fit the chain or the operation")]
    Length,
}

impl Packet {
    /// Checks the header of a packet that the guest `own` sent in a chain with `room` bytes behind the
    /// header.
    ///
    /// # Errors
    /// The first rule that the header breaks.
    pub fn check(header: &Header, own: u32, room: u32, seqpacket: bool) -> Result<Self, Invalid> {
        if header.src_cid != u64::from(own) {
            return Err(Invalid::Source);
        }
        let cid = u32::try_from(header.dst_cid).ok();
        let cid = cid.filter(|cid| (2..u32::MAX).contains(cid) && *cid != own);
        let cid = cid.ok_or(Invalid::Destination)?;
        let kind = SocketType::from_number(header.kind);
        let kind = kind.filter(|kind| seqpacket || *kind == SocketType::Stream);
        let kind = kind.ok_or(Invalid::SocketType)?;
        let operation = Operation::from_number(header.op).ok_or(Invalid::Operation)?;
        let most = match operation {
            Operation::ReadWrite => room.min(MAX_PAYLOAD),
            _ => 0,
        };
        if header.len > most {
            return Err(Invalid::Length);
        }
        let known = match (operation, kind) {
            (Operation::Shutdown, _) => SHUTDOWN_BOTH,
            (Operation::ReadWrite, SocketType::SeqPacket) => {
                crate::header::END_OF_MESSAGE | crate::header::END_OF_RECORD
            }
            _ => 0,
        };
        Ok(Self {
            source: Address {
                cid: own,
                port: header.src_port,
            },
            destination: Address {
                cid,
                port: header.dst_port,
            },
            length: header.len,
            kind,
            operation,
            flags: header.flags & known,
            buf_alloc: header.buf_alloc,
            fwd_cnt: header.fwd_cnt,
        })
    }

    /// Returns a packet without payload and without receive space.
    #[must_use]
    pub fn control(
        operation: Operation,
        kind: SocketType,
        source: Address,
        destination: Address,
    ) -> Self {
        Self {
            source,
            destination,
            length: 0,
            kind,
            operation,
            flags: 0,
            buf_alloc: 0,
            fwd_cnt: 0,
        }
    }

    /// Returns the reset that answers a packet.
    #[must_use]
    pub fn reset(&self) -> Self {
        Self::control(Operation::Reset, self.kind, self.destination, self.source)
    }

    /// Returns the header of the whole packet.
    #[inline]
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            src_cid: self.source.cid.into(),
            dst_cid: self.destination.cid.into(),
            src_port: self.source.port,
            dst_port: self.destination.port,
            len: self.length,
            kind: self.kind as u16,
            op: self.operation as u16,
            flags: self.flags,
            buf_alloc: self.buf_alloc,
            fwd_cnt: self.fwd_cnt,
        }
    }
}

/// Returns the reset that answers a packet which [`Packet::check`] refused, if one can be sent: a guest
/// may get an answer only from the addresses that it wrote, at its own CID.
#[must_use]
pub fn reset_of_invalid(header: &Header, own: u32, invalid: Invalid) -> Option<Header> {
    let answered = match invalid {
        Invalid::Short | Invalid::Source => false,
        Invalid::Destination | Invalid::Operation | Invalid::SocketType | Invalid::Length => true,
    };
    // 5.10.6.5.1: a reset is not answered.
    (answered && header.op != Operation::Reset as u16).then(|| Header {
        src_cid: header.dst_cid,
        dst_cid: own.into(),
        src_port: header.dst_port,
        dst_port: header.src_port,
        kind: header.kind,
        op: Operation::Reset as u16,
        ..Header::default()
    })
}
