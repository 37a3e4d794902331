//! The handshake data of endpoints, in offers and answers. Numbers are little endian.

use window::attach::HandshakeData;

use crate::address::Address;
use crate::program_address::ProgramAddress;

/// The data of an offer: its sender and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) session: u64,
    /// The key that the sender was opened with. `None` for an endpoint on a host that does not send it (Open-MX).
    pub(crate) own_key: Option<u32>,
    /// The key that the sender believes the target was opened with.
    pub(crate) key: u32,
    /// Whether the sender's sleeps fence the target, too (`window::doorbell`).
    pub(crate) fences: bool,
    /// Whether the sender copies messages from and to the memory of the target's process, where the kernel lets it
    /// (`process_memory`).
    pub(crate) process_memory: bool,
    /// Whether the sender is on another host. Only from gateways.
    pub(crate) other_host: bool,
    /// Where the sender's program takes datagrams, if it would rather have the link by these than by the daemons ([`INTRODUCED`]). Only to
    /// and from gateways.
    pub(crate) program: Option<ProgramAddress>,
    /// Only from gateways.
    pub(crate) members: Option<MemberPair>,
}

/// The data of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HelloReply {
    pub(crate) verdict: u32,
    pub(crate) session: u64,
    /// As [`Hello::fences`].
    pub(crate) fences: bool,
    /// As [`Hello::process_memory`].
    pub(crate) process_memory: bool,
    /// As [`Hello::other_host`].
    pub(crate) other_host: bool,
    /// Where the answering program takes datagrams, with the verdict [`INTRODUCED`].
    pub(crate) program: Option<ProgramAddress>,
    /// Only from gateways.
    pub(crate) members: Option<MemberPair>,
}

/// The members of a region that the two ends of a direct link belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberPair {
    /// The member of the receiver of this data.
    pub(crate) own: u32,
    pub(crate) peer: u32,
}

impl MemberPair {
    /// Encodes nothing for `None`.
    fn encode(members: Option<Self>) -> impl Iterator<Item = u8> {
        let words = members
            .into_iter()
            .flat_map(|members| [members.own, members.peer]);
        words.flat_map(u32::to_le_bytes)
    }

    /// Decodes the rest of the handshake data: nothing, or the members.
    fn decode(bytes: &[u8]) -> Option<Option<Self>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let (own, bytes) = bytes.split_first_chunk()?;
        let peer = u32::from_le_bytes(bytes.try_into().ok()?);
        let own = u32::from_le_bytes(*own);
        Some(Some(Self { own, peer }))
    }
}

/// Flags of offers and answers.
const FENCES: u8 = 1;
const HAS_OWN_KEY: u8 = 2;
const PROCESS_MEMORY: u8 = 4;
const OTHER_HOST: u8 = 8;
const HAS_PROGRAM: u8 = 16;

/// Returns the flag if it is set.
fn flag(flag: u8, is_set: bool) -> u8 {
    u8::from(is_set) * flag
}

/// The window is accepted.
pub(crate) const ACCEPTED: u32 = 0;
/// The key is not the endpoint's.
pub(crate) const BAD_KEY: u32 = 1;
/// The answering side has sent an offer itself and has the lower address.
pub(crate) const SIMULTANEOUS: u32 = 2;
/// Refused: there is no room, or a link exists already.
pub(crate) const FULL: u32 = 3;
/// The endpoint is not open. Only from gateways: on its own board, the connection fails by itself.
pub(crate) const CLOSED: u32 = 4;
/// The other host does not answer. Only from uplinks.
pub(crate) const UNREACHABLE: u32 = 5;
/// No member and no host has this NIC id. Only from the broker and uplinks.
pub(crate) const UNKNOWN: u32 = 6;
/// Refused, because both programs take datagrams: the one that connects repeats its offer by these, and the other one expects that.
pub(crate) const INTRODUCED: u32 = 7;

/// Returns the address of the program, if the flags say that there is one, and the rest of the handshake data.
fn decode_program(flags: u8, bytes: &[u8]) -> Option<(Option<ProgramAddress>, &[u8])> {
    if flags & HAS_PROGRAM == 0 {
        return Some((None, bytes));
    }
    let (program, rest) = ProgramAddress::decode(bytes)?;
    Some((Some(program), rest))
}

impl Hello {
    pub(crate) fn encode(&self) -> HandshakeData {
        let mut bytes = HandshakeData::new();
        bytes.extend(self.from.nic.to_le_bytes());
        bytes.extend(self.session.to_le_bytes());
        bytes.extend(self.from.endpoint.to_le_bytes());
        bytes.extend(self.own_key.unwrap_or_default().to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.to.nic.to_le_bytes());
        bytes.extend(self.to.endpoint.to_le_bytes());
        let own_key = flag(HAS_OWN_KEY, self.own_key.is_some());
        let process_memory = flag(PROCESS_MEMORY, self.process_memory);
        let other_host = flag(OTHER_HOST, self.other_host);
        let program = flag(HAS_PROGRAM, self.program.is_some());
        bytes.push(flag(FENCES, self.fences) | own_key | process_memory | other_host | program);
        bytes.extend(ProgramAddress::encode(self.program));
        bytes.extend(MemberPair::encode(self.members));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (nic, bytes) = bytes.split_first_chunk()?;
        let (session, bytes) = bytes.split_first_chunk()?;
        let (endpoint, bytes) = bytes.split_first_chunk()?;
        let (own_key, bytes) = bytes.split_first_chunk()?;
        let (key, bytes) = bytes.split_first_chunk()?;
        let (to_nic, bytes) = bytes.split_first_chunk()?;
        let (to_endpoint, bytes) = bytes.split_first_chunk()?;
        let ([flags], bytes) = bytes.split_first_chunk()?;
        let (program, bytes) = decode_program(*flags, bytes)?;
        let from = Address {
            nic: u64::from_le_bytes(*nic),
            endpoint: u32::from_le_bytes(*endpoint),
        };
        let to = Address {
            nic: u64::from_le_bytes(*to_nic),
            endpoint: u32::from_le_bytes(*to_endpoint),
        };
        Some(Self {
            from,
            to,
            session: u64::from_le_bytes(*session),
            own_key: (flags & HAS_OWN_KEY != 0).then_some(u32::from_le_bytes(*own_key)),
            key: u32::from_le_bytes(*key),
            fences: flags & FENCES != 0,
            process_memory: flags & PROCESS_MEMORY != 0,
            other_host: flags & OTHER_HOST != 0,
            program,
            members: MemberPair::decode(bytes)?,
        })
    }
}

impl HelloReply {
    pub(crate) fn encode(&self) -> HandshakeData {
        let mut bytes = HandshakeData::new();
        bytes.extend(self.session.to_le_bytes());
        bytes.extend(self.verdict.to_le_bytes());
        let process_memory = flag(PROCESS_MEMORY, self.process_memory);
        let other_host = flag(OTHER_HOST, self.other_host);
        let program = flag(HAS_PROGRAM, self.program.is_some());
        bytes.push(flag(FENCES, self.fences) | process_memory | other_host | program);
        bytes.extend(ProgramAddress::encode(self.program));
        bytes.extend(MemberPair::encode(self.members));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (session, bytes) = bytes.split_first_chunk()?;
        let (verdict, bytes) = bytes.split_first_chunk()?;
        let ([flags], bytes) = bytes.split_first_chunk()?;
        let (program, bytes) = decode_program(*flags, bytes)?;
        Some(Self {
            session: u64::from_le_bytes(*session),
            verdict: u32::from_le_bytes(*verdict),
            fences: flags & FENCES != 0,
            process_memory: flags & PROCESS_MEMORY != 0,
            other_host: flags & OTHER_HOST != 0,
            program,
            members: MemberPair::decode(bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_data_is_decoded_as_it_was_encoded() {
        let hello = Hello {
            from: Address {
                nic: 0x0200_0000_0001,
                endpoint: 7,
            },
            to: Address {
                nic: 5,
                endpoint: 6,
            },
            session: u64::MAX - 1,
            own_key: Some(3),
            key: 4,
            fences: true,
            process_memory: true,
            other_host: true,
            program: None,
            members: None,
        };
        let reply = HelloReply {
            verdict: SIMULTANEOUS,
            session: 9,
            fences: true,
            process_memory: true,
            other_host: true,
            program: None,
            members: None,
        };
        for members in [None, Some(MemberPair { own: 1, peer: 2 })] {
            let (hello, reply) = (Hello { members, ..hello }, HelloReply { members, ..reply });
            let without_key = Hello {
                own_key: None,
                ..hello
            };
            assert_eq!(Hello::decode(&without_key.encode()), Some(without_key));
            let program = ProgramAddress::new(([10, 0, 0, 1], 4000).into());
            let (with, reply_with) = (Hello { program, ..hello }, HelloReply { program, ..reply });
            assert_eq!(Hello::decode(&with.encode()), Some(with));
            assert_eq!(HelloReply::decode(&reply_with.encode()), Some(reply_with));
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            assert_eq!(HelloReply::decode(&reply.encode()), Some(reply));
            assert_eq!(Hello::decode(&reply.encode()), None);
            assert_eq!(HelloReply::decode(&hello.encode()), None);
            let mut longer = reply.encode();
            longer.push(0);
            assert_eq!(HelloReply::decode(&longer), None);
        }
        assert_eq!(Hello::decode(&[]), None);
    }
}
