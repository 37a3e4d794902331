//! Decodes the messages of a front-end (vhost-user specification, "Communication").
//!
//! Decoding has no side effects: it converts bytes and a count of descriptors to a [`Request`] or a
//! fault. [`crate::backend`] makes the checks that need the device's state.

use crate::fault::ProtocolFault;
use crate::limits::{MAX_CONFIG, MAX_PAYLOAD, MAX_TABLE_REGIONS, MAX_VRINGS};
use crate::memory::RegionInfo;

use arrayvec::ArrayVec;

/// The header in front of each message: request, flags and payload size, each 32 bits in the host's
/// byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's number.
    pub request: u32,
    /// The version, and the reply and need-reply bits.
    pub flags: u32,
    /// Payload bytes behind the header.
    pub size: u32,
}

impl Header {
    /// Bytes of the header.
    pub const SIZE: usize = 12;

    const VERSION_MASK: u32 = 0x3;
    const VERSION: u32 = 0x1;
    const REPLY: u32 = 1 << 2;
    const NEED_REPLY: u32 = 1 << 3;

    /// Decodes a header and checks its version and size.
    ///
    /// # Errors
    /// The version is not 1, or the payload is larger than that of any message.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Result<Self, ProtocolFault> {
        let [request, flags, size] = words(&bytes);
        if flags & Self::VERSION_MASK != Self::VERSION {
            return Err(ProtocolFault::Version {
                request,
                version: flags & Self::VERSION_MASK,
            });
        }
        if size as usize > MAX_PAYLOAD {
            return Err(ProtocolFault::Size { request, size });
        }
        Ok(Self {
            request,
            flags,
            size,
        })
    }

    /// Encodes the header of a reply with a payload of `size` bytes.
    #[must_use]
    pub fn reply(request: u32, size: u32) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let fields = [request, Self::VERSION | Self::REPLY, size];
        for (to, field) in bytes.chunks_exact_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    /// Returns whether the front-end requested an acknowledgement of a message without a reply.
    #[must_use]
    pub fn needs_reply(&self) -> bool {
        self.flags & Self::NEED_REPLY != 0
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut out = [0; N];
    for (word, chunk) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = chunk.try_into().map_or(0, u32::from_ne_bytes);
    }
    out
}

/// The addresses of the parts of a ring, as addresses of the front-end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddresses {
    /// Descriptor table.
    pub descriptors: u64,
    /// Used ring.
    pub used: u64,
    /// Available ring.
    pub available: u64,
    /// The address in the dirty log at which writes to the used ring are marked, if the front-end
    /// requested it.
    pub log: Option<u64>,
}

/// A decoded message. Ring numbers are below [`MAX_VRINGS`].
#[allow(
    clippy::large_enum_variant,
    reason = "messages are rare and are stored on the stack"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// 1: returns the features of the device.
    GetFeatures,
    /// 2: sets the features that the driver acknowledged.
    SetFeatures(u64),
    /// 3: begins the session.
    SetOwner,
    /// 4, deprecated: stops all rings.
    ResetOwner,
    /// 5: replaces all memory regions; carries one descriptor a region.
    SetMemTable(ArrayVec<RegionInfo, MAX_TABLE_REGIONS>),
    /// 6: sets the dirty log of a migration; carries one descriptor.
    SetLogBase {
        /// Size of the log in bytes.
        size: u64,
        /// Offset of the log in its file.
        offset: u64,
    },
    /// 7: sets the eventfd that signals changes of the log; carries one descriptor.
    SetLogFd,
    /// 8: sets a ring's size.
    SetVringNum(usize, u32),
    /// 9: sets a ring's addresses.
    SetVringAddr(usize, RingAddresses),
    /// 10: sets the position at which a ring resumes.
    SetVringBase(usize, u16),
    /// 11: stops a ring and returns the position at which it can resume.
    GetVringBase(usize),
    /// 12: starts a ring; carries the kick descriptor, or none when the back-end must poll.
    SetVringKick(usize),
    /// 13: sets the call descriptor of a ring; carries one descriptor, or none when the driver polls.
    SetVringCall(usize),
    /// 14: sets the descriptor that signals ring errors; carries one descriptor or none.
    SetVringErr(usize),
    /// 15: returns the protocol features.
    GetProtocolFeatures,
    /// 16: sets the protocol features that the front-end acknowledged.
    SetProtocolFeatures(u64),
    /// 17: returns the number of queue pairs.
    GetQueueNum,
    /// 18: enables or disables a ring.
    SetVringEnable(usize, bool),
    /// 19: announces this MAC address after a migration.
    SendRarp([u8; 6]),
    /// 20: sets the MTU.
    SetMtu(u64),
    /// 24: returns a part of the configuration space.
    GetConfig {
        /// Offset of the part.
        offset: u32,
        /// Bytes of the part.
        size: u32,
        /// Flags, which the reply repeats.
        flags: u32,
    },
    /// 34: resets the device.
    ResetDevice,
    /// 36: returns the highest possible number of memory regions.
    GetMaxMemSlots,
    /// 37: adds a memory region; carries one descriptor.
    AddMemReg(RegionInfo),
    /// 38: removes a memory region.
    RemMemReg(RegionInfo),
    /// 39: sets the driver's status.
    SetStatus(u64),
    /// 40: returns the driver's status.
    GetStatus,
}

/// Bit of a kick, call or error message: the message carries no descriptor.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Flag of a ring's addresses (`VHOST_VRING_F_LOG`): the back-end logs writes to the used ring.
const LOG_USED: u32 = 1 << 0;

/// Decodes a message that came with `descriptors` descriptors.
///
/// # Errors
/// There is no such message, or its payload or descriptors do not match it.
pub fn decode(
    header: &Header,
    payload: &[u8],
    descriptors: usize,
) -> Result<Request, ProtocolFault> {
    let body = Body {
        request: header.request,
        payload,
    };
    let (request, expected) = body.decode()?;
    // Some front-ends send the region's descriptor with REM_MEM_REG; the specification has the
    // back-end accept and close it.
    let spare = matches!(request, Request::RemMemReg(_)) && descriptors == 1;
    if descriptors != expected && !spare {
        return Err(ProtocolFault::Descriptors {
            request: header.request,
            got: descriptors,
            expected,
        });
    }
    Ok(request)
}

/// A message while its payload is decoded.
struct Body<'a> {
    request: u32,
    payload: &'a [u8],
}

impl Body<'_> {
    /// Returns the message and the number of descriptors that it carries.
    fn decode(&self) -> Result<(Request, usize), ProtocolFault> {
        let request = match self.request {
            1 => self.empty(Request::GetFeatures)?,
            2 => Request::SetFeatures(self.number()?),
            3 => self.empty(Request::SetOwner)?,
            4 => self.empty(Request::ResetOwner)?,
            5 => {
                let regions = self.table()?;
                let count = regions.len();
                return Ok((Request::SetMemTable(regions), count));
            }
            6 => return Ok((self.log()?, 1)),
            7 => return Ok((self.empty(Request::SetLogFd)?, 1)),
            8 => self
                .state()
                .map(|(ring, size)| Request::SetVringNum(ring, size))?,
            9 => self.addresses()?,
            10 => {
                let (ring, base) = self.state()?;
                let base = u16::try_from(base).map_err(|_| self.bad_size())?;
                Request::SetVringBase(ring, base)
            }
            11 => self.state().map(|(ring, _)| Request::GetVringBase(ring))?,
            12 => return self.ring_descriptor(Request::SetVringKick),
            13 => return self.ring_descriptor(Request::SetVringCall),
            14 => return self.ring_descriptor(Request::SetVringErr),
            15 => self.empty(Request::GetProtocolFeatures)?,
            16 => Request::SetProtocolFeatures(self.number()?),
            17 => self.empty(Request::GetQueueNum)?,
            18 => self
                .state()
                .map(|(ring, on)| Request::SetVringEnable(ring, on != 0))?,
            19 => {
                let [a, b, c, d, e, f, _, _] = self.number()?.to_ne_bytes();
                Request::SendRarp([a, b, c, d, e, f])
            }
            20 => Request::SetMtu(self.number()?),
            24 => self.config()?,
            34 => self.empty(Request::ResetDevice)?,
            36 => self.empty(Request::GetMaxMemSlots)?,
            37 => return Ok((Request::AddMemReg(self.region()?), 1)),
            38 => Request::RemMemReg(self.region()?),
            39 => Request::SetStatus(self.number()?),
            40 => self.empty(Request::GetStatus)?,
            // Messages of features that this back-end does not offer.
            21..=23 | 25..=33 | 35 | 41..=44 => {
                return Err(ProtocolFault::NotNegotiated(self.request));
            }
            other => return Err(ProtocolFault::Unknown(other)),
        };
        Ok((request, 0))
    }

    fn bad_size(&self) -> ProtocolFault {
        // A payload is at most MAX_PAYLOAD bytes.
        let size = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        ProtocolFault::Size {
            request: self.request,
            size,
        }
    }

    fn exactly<const N: usize>(&self) -> Result<[u8; N], ProtocolFault> {
        self.payload.try_into().map_err(|_| self.bad_size())
    }

    fn empty(&self, request: Request) -> Result<Request, ProtocolFault> {
        self.exactly::<0>().map(|_| request)
    }

    fn number(&self) -> Result<u64, ProtocolFault> {
        self.exactly().map(u64::from_ne_bytes)
    }

    /// Decodes a vring state description: ring number and value.
    fn state(&self) -> Result<(usize, u32), ProtocolFault> {
        let [index, value] = words(&self.exactly::<8>()?);
        Ok((ring(index)?, value))
    }

    /// Decodes the payload of kick, call and error messages: ring number and no-descriptor bit.
    fn ring_descriptor(
        &self,
        request: fn(usize) -> Request,
    ) -> Result<(Request, usize), ProtocolFault> {
        let value = self.number()?;
        let index = u32::try_from(value & 0xff).unwrap_or(u32::MAX);
        Ok((
            request(ring(index)?),
            usize::from(value & NO_DESCRIPTOR == 0),
        ))
    }

    /// Decodes a vring address description: ring, flags, descriptors, used, available, log.
    fn addresses(&self) -> Result<Request, ProtocolFault> {
        let bytes: [u8; 40] = self.exactly()?;
        let [index, flags] = words(&bytes);
        let [_, descriptors, used, available, log] = long_words(&bytes);
        let addresses = RingAddresses {
            descriptors,
            used,
            available,
            log: (flags & LOG_USED != 0).then_some(log),
        };
        Ok(Request::SetVringAddr(ring(index)?, addresses))
    }

    /// Decodes a log description: size, offset.
    fn log(&self) -> Result<Request, ProtocolFault> {
        let [size, offset] = long_words(&self.exactly::<16>()?);
        Ok(Request::SetLogBase { size, offset })
    }

    /// Decodes a configuration space: offset, size, flags, and a place for as many bytes.
    fn config(&self) -> Result<Request, ProtocolFault> {
        let (head, space) = self
            .payload
            .split_at_checked(12)
            .ok_or_else(|| self.bad_size())?;
        let [offset, size, flags] = words(head);
        if space.len() > MAX_CONFIG || space.len() != size as usize {
            return Err(self.bad_size());
        }
        Ok(Request::GetConfig {
            offset,
            size,
            flags,
        })
    }

    /// Decodes a memory table: count, padding, regions. User-Mode Linux always sends a table of full
    /// size, so bytes behind the last region are ignored.
    fn table(&self) -> Result<ArrayVec<RegionInfo, MAX_TABLE_REGIONS>, ProtocolFault> {
        let (head, body) = self
            .payload
            .split_at_checked(8)
            .ok_or_else(|| self.bad_size())?;
        let [count, _] = words(head);
        let count = count as usize;
        if count == 0 || count > MAX_TABLE_REGIONS || count * 32 > body.len() {
            return Err(self.bad_size());
        }
        Ok(body.chunks_exact(32).take(count).map(region).collect())
    }

    /// Decodes one memory region: padding, region.
    fn region(&self) -> Result<RegionInfo, ProtocolFault> {
        let bytes: [u8; 40] = self.exactly()?;
        let (_, body) = bytes.split_at(8);
        Ok(region(body))
    }
}

fn ring(index: u32) -> Result<usize, ProtocolFault> {
    let ring = index as usize;
    if ring < MAX_VRINGS {
        Ok(ring)
    } else {
        Err(ProtocolFault::RingNumber(index))
    }
}

fn region(bytes: &[u8]) -> RegionInfo {
    let [guest, size, user, offset] = long_words(bytes);
    RegionInfo {
        guest,
        size,
        user,
        offset,
    }
}

fn long_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut out = [0; N];
    for (word, chunk) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.try_into().map_or(0, u64::from_ne_bytes);
    }
    out
}
