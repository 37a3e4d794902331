//! The packet header (virtio 1.3, 5.10.6): 44 bytes, little-endian, in front of each packet's payload.

/// The well-known CID of the host (5.10.4).
pub const HOST_CID: u32 = 2;

/// The lowest CID of a guest (5.10.4): lower ones are reserved or the host's.
pub const FIRST_GUEST_CID: u32 = 3;

/// The highest CID of a guest; `0xffff_ffff` is reserved, and the upper half of a CID is zero (5.10.4).
pub const LAST_GUEST_CID: u32 = u32::MAX - 1;

/// `VIRTIO_VSOCK_SHUTDOWN_F_RECEIVE`: the sender of a `SHUTDOWN` will not receive any more data.
pub const SHUTDOWN_RECEIVE: u32 = 1 << 0;
/// `VIRTIO_VSOCK_SHUTDOWN_F_SEND`: the sender of a `SHUTDOWN` will not send any more data.
pub const SHUTDOWN_SEND: u32 = 1 << 1;
/// Both of them.
pub const SHUTDOWN_BOTH: u32 = SHUTDOWN_RECEIVE | SHUTDOWN_SEND;

/// `VIRTIO_VSOCK_SEQ_EOM`: the last packet of a message (5.10.6.7.2).
pub const END_OF_MESSAGE: u32 = 1 << 0;
/// `VIRTIO_VSOCK_SEQ_EOR`: the last packet of a message that ends a record (5.10.6.7.2).
pub const END_OF_RECORD: u32 = 1 << 1;

/// A header as it is in memory. Nothing in it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender's CID.
    pub src_cid: u64,
    /// The receiver's CID.
    pub dst_cid: u64,
    /// The sender's port.
    pub src_port: u32,
    /// The receiver's port.
    pub dst_port: u32,
    /// Payload bytes behind the header.
    pub len: u32,
    /// The socket type, see [`SocketType`].
    pub kind: u16,
    /// The operation, see [`Operation`].
    pub op: u16,
    /// Flags; their meaning depends on operation and type.
    pub flags: u32,
    /// The sender's receive space for this connection, in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender's program has taken out of that space, modulo 2³².
    pub fwd_cnt: u32,
}

impl Header {
    /// Bytes of a header.
    pub const SIZE: usize = 44;

    /// The same number, as lengths of chains have it.
    pub const BYTES: u32 = 44;

    /// Returns the header of a piece of this packet: of `len` bytes of its payload. 5.10.6.7.2: the flags
    /// of a message's end belong to its last piece.
    #[inline]
    #[must_use]
    pub fn piece(&self, len: u32, is_last: bool) -> Self {
        let inside = self.op == Operation::ReadWrite as u16 && !is_last;
        let flags = if inside { 0 } else { self.flags };
        Self {
            len,
            flags,
            ..*self
        }
    }

    /// Decodes a header.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut at = Fields(bytes);
        Self {
            src_cid: u64::from_le_bytes(at.take()),
            dst_cid: u64::from_le_bytes(at.take()),
            src_port: u32::from_le_bytes(at.take()),
            dst_port: u32::from_le_bytes(at.take()),
            len: u32::from_le_bytes(at.take()),
            kind: u16::from_le_bytes(at.take()),
            op: u16::from_le_bytes(at.take()),
            flags: u32::from_le_bytes(at.take()),
            buf_alloc: u32::from_le_bytes(at.take()),
            fwd_cnt: u32::from_le_bytes(at.take()),
        }
    }

    /// Encodes the header.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut rest = bytes.as_mut_slice();
        for field in [
            &self.src_cid.to_le_bytes()[..],
            &self.dst_cid.to_le_bytes(),
            &self.src_port.to_le_bytes(),
            &self.dst_port.to_le_bytes(),
            &self.len.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.op.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &self.buf_alloc.to_le_bytes(),
            &self.fwd_cnt.to_le_bytes(),
        ] {
            // The fields have 44 bytes together, so each finds its place.
            if let Some((to, behind)) = rest.split_at_mut_checked(field.len()) {
                to.copy_from_slice(field);
                rest = behind;
            } else {
                break;
            }
        }
        bytes
    }
}

/// The fields of a header that are not decoded yet.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    /// Takes the next field. A header has all its fields, so there always is one.
    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }
}

/// The operation of a packet (5.10.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Operation {
    /// A request to connect.
    Request = 1,
    /// The answer to it: the connection is established.
    Response = 2,
    /// The connection does not exist, or ends now.
    Reset = 3,
    /// One or both directions end.
    Shutdown = 4,
    /// Payload.
    ReadWrite = 5,
    /// The sender's receive space.
    CreditUpdate = 6,
    /// Asks for a [`CreditUpdate`](Self::CreditUpdate).
    CreditRequest = 7,
}

impl Operation {
    /// Decodes an operation.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Reset,
            4 => Self::Shutdown,
            5 => Self::ReadWrite,
            6 => Self::CreditUpdate,
            7 => Self::CreditRequest,
            _ => return None,
        })
    }
}

/// The type of a connection's sockets (5.10.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum SocketType {
    /// `SOCK_STREAM`.
    Stream = 1,
    /// `SOCK_SEQPACKET`.
    SeqPacket = 2,
}

impl SocketType {
    /// Decodes a type.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Stream),
            2 => Some(Self::SeqPacket),
            _ => None,
        }
    }
}
