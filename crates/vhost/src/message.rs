//! The messages a front-end sends, decoded (vhost-user specification, "Communication").
//!
//! Decoding is pure: bytes and a count of descriptors in, a [`Request`] or a fault out. What is
//! left to check needs the device's state and is checked by [`crate::backend`].

use crate::fault::ProtocolFault;
use crate::limits::{MAX_PAYLOAD, MAX_TABLE_REGIONS, MAX_VRINGS};
use crate::memory::RegionInfo;

use arrayvec::ArrayVec;

/// The header in front of each message: request, flags, payload size, all 32 bits in the order
/// of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message.
    pub request: u32,
    /// Version, reply and need-reply bits.
    pub flags: u32,
    /// Payload bytes that follow.
    pub size: u32,
}

impl Header {
    /// Bytes of the header.
    pub const SIZE: usize = 12;

    const VERSION_MASK: u32 = 0x3;
    const VERSION: u32 = 0x1;
    const REPLY: u32 = 1 << 2;
    const NEED_REPLY: u32 = 1 << 3;

    /// From its bytes, checked for version and size.
    ///
    /// # Errors
    /// Another version, or a payload larger than any message's.
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

    /// The header of a reply with a payload of `size` bytes.
    #[must_use]
    pub fn reply(request: u32, size: u32) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let fields = [request, Self::VERSION | Self::REPLY, size];
        for (to, field) in bytes.chunks_exact_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    /// The front-end wants an acknowledgement even though the message has no reply.
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

/// Where the parts of a ring are, in addresses of the front-end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddresses {
    /// Descriptor table.
    pub descriptors: u64,
    /// Used ring.
    pub used: u64,
    /// Available ring.
    pub available: u64,
    /// Where writes to the used ring are logged, if they are to be: an address of the dirty log.
    pub log: Option<u64>,
}

/// A decoded message. Rings are numbers below [`MAX_VRINGS`].
#[allow(
    clippy::large_enum_variant,
    reason = "messages are rare and live on the stack"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// 1: which features does the device have?
    GetFeatures,
    /// 2: the features the driver took.
    SetFeatures(u64),
    /// 3: the session begins.
    SetOwner,
    /// 4, deprecated: stop all rings.
    ResetOwner,
    /// 5: all the memory there is; one descriptor a region.
    SetMemTable(ArrayVec<RegionInfo, MAX_TABLE_REGIONS>),
    /// 6: where writes are logged during a migration; one descriptor.
    SetLogBase {
        /// Bytes of the log.
        size: u64,
        /// Where it begins in its file.
        offset: u64,
    },
    /// 7: how to tell that something was logged; one descriptor.
    SetLogFd,
    /// 8: a ring's size.
    SetVringNum(usize, u32),
    /// 9: a ring's addresses.
    SetVringAddr(usize, RingAddresses),
    /// 10: where a ring goes on.
    SetVringBase(usize, u16),
    /// 11: stop a ring and say where.
    GetVringBase(usize),
    /// 12: start a ring; one descriptor, none when polling is wanted.
    SetVringKick(usize),
    /// 13: how to call the driver; one descriptor, none when it polls.
    SetVringCall(usize),
    /// 14: how to tell of ring errors; one descriptor or none.
    SetVringErr(usize),
    /// 15: which protocol features are there?
    GetProtocolFeatures,
    /// 16: the protocol features the front-end took.
    SetProtocolFeatures(u64),
    /// 17: how many queue pairs?
    GetQueueNum,
    /// 18: let a ring carry traffic, or not.
    SetVringEnable(usize, bool),
    /// 19: announce this MAC after a migration.
    SendRarp([u8; 6]),
    /// 20: the MTU.
    SetMtu(u64),
    /// 34: as new.
    ResetDevice,
    /// 36: how many memory regions at most?
    GetMaxMemSlots,
    /// 37: one more region; one descriptor.
    AddMemReg(RegionInfo),
    /// 38: one region less.
    RemMemReg(RegionInfo),
    /// 39: the driver's status.
    SetStatus(u64),
    /// 40: which status?
    GetStatus,
}

/// Bit of a kick, call or error message: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Flag of a ring's addresses (`VHOST_VRING_F_LOG`): log writes to the used ring.
const LOG_USED: u32 = 1 << 0;

/// Decode a message that came with `descriptors` descriptors.
///
/// # Errors
/// No such message, or its payload or descriptors are not what it takes.
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

/// A payload being taken apart.
struct Body<'a> {
    request: u32,
    payload: &'a [u8],
}

impl Body<'_> {
    /// The message and the number of descriptors it takes.
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
            34 => self.empty(Request::ResetDevice)?,
            36 => self.empty(Request::GetMaxMemSlots)?,
            37 => return Ok((Request::AddMemReg(self.region()?), 1)),
            38 => Request::RemMemReg(self.region()?),
            39 => Request::SetStatus(self.number()?),
            40 => self.empty(Request::GetStatus)?,
            // Messages of features that are never offered.
            21..=33 | 35 | 41..=44 => {
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

    /// A vring state description: ring number and value.
    fn state(&self) -> Result<(usize, u32), ProtocolFault> {
        let [index, value] = words(&self.exactly::<8>()?);
        Ok((ring(index)?, value))
    }

    /// Kick, call and error messages: ring number and the no-descriptor bit.
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

    /// A vring address description: ring, flags, descriptors, used, available, log.
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

    /// A log description: size, offset.
    fn log(&self) -> Result<Request, ProtocolFault> {
        let [size, offset] = long_words(&self.exactly::<16>()?);
        Ok(Request::SetLogBase { size, offset })
    }

    /// A memory table: count, padding, regions. User-Mode Linux always sends room for all of
    /// them, so what is behind the last one is not looked at.
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

    /// One memory region: padding, region.
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
