//! The messages between gateways and the broker.
//!
//! The tag is the kind. A message about a link holds the link's number in the low half of its first
//! word. Such a number is valid between one gateway and the host only: gateways number the links
//! that they begin, with the highest bit set, and the host numbers the others.

use window::lane::Record;

use crate::address::Address;
use crate::handshake::Hello;
use crate::program_address::ProgramAddress;
use crate::wire::{halves, pair};

/// The number of a link.
pub(super) type LinkId = u32;

/// Set in the numbers that gateways assign.
pub(super) const FROM_MEMBER: LinkId = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// An endpoint connects. From the host, with the link's window, and with the place of the other end.
    Connect {
        link: LinkId,
        window: u32,
        hello: Hello,
        other_end: OtherEnd,
    },
    /// The result of a connect. From the host, with window and other end if it was accepted.
    Answer {
        link: LinkId,
        window: u32,
        verdict: u32,
        session: u64,
        other_end: OtherEnd,
        /// With the verdict [`INTRODUCED`](crate::handshake::INTRODUCED).
        program: Option<ProgramAddress>,
    },
    /// The endpoint at the other end sleeps, and records were published for it.
    Ring { link: LinkId },
    /// This end of the link is closed. The link is removed when both ends are.
    Close { link: LinkId },
    /// The other end does not answer any more. A *close* follows.
    Lost { link: LinkId },
    /// From the host to an uplink: a member has joined, or left.
    Member { nic: u64, here: bool },
    /// A part of the name of a member or another host, see [`names`](super::names). From an uplink
    /// to the host, and from there to gateways.
    Name { nic: u64, part: u32, text: Text },
}

/// Part of a name, padded with zeros.
pub(super) type Text = [u8; TEXT];

/// Bytes of a part.
pub(super) const TEXT: usize = 40;

const CONNECT: u32 = 1;
const ANSWER: u32 = 2;
const RING: u32 = 3;
const CLOSE: u32 = 4;
const MEMBER: u32 = 5;
const LOST: u32 = 6;
const NAME: u32 = 7;
/// A [`CONNECT`] of an endpoint whose own key is not known.
const CONNECT_WITHOUT_KEY: u32 = 8;
/// A [`CONNECT`] of an endpoint whose program takes datagrams: to or from another host.
const CONNECT_OF_PROGRAM: u32 = 9;

/// Bits of a NIC id.
const NIC_BITS: u32 = 48;

impl ControlMessage {
    /// The refusal of a connect.
    pub(super) fn refusal(link: LinkId, verdict: u32) -> Self {
        Self::Answer {
            link,
            window: 0,
            verdict,
            session: 0,
            other_end: OtherEnd::default(),
            program: None,
        }
    }

    pub(super) fn encode(&self) -> Record {
        let (tag, body) = match *self {
            Self::Connect {
                link,
                window,
                hello,
                other_end,
            } => {
                // A program may have sent any NIC id.
                let fits =
                    (hello.from.nic | hello.to.nic) >> NIC_BITS == 0 && hello.own_key.is_some();
                let program = hello.program.filter(|_| fits);
                let numbers = program.map(ProgramAddress::numbers);
                let (kind, port, bits) = numbers.unwrap_or((0, 0, other_end.encode()));
                let body = [
                    pair(link, window),
                    hello.from.nic | u64::from(kind) << NIC_BITS,
                    hello.to.nic | u64::from(port) << NIC_BITS,
                    pair(hello.from.endpoint, hello.to.endpoint),
                    hello.session,
                    pair(hello.own_key.unwrap_or_default(), hello.key),
                    bits,
                ];
                match (hello.own_key, numbers) {
                    (_, Some(_)) => (CONNECT_OF_PROGRAM, body),
                    (Some(_), None) => (CONNECT, body),
                    (None, None) => (CONNECT_WITHOUT_KEY, body),
                }
            }
            Self::Answer {
                link,
                window,
                verdict,
                session,
                other_end,
                program,
            } => {
                let (verdict, other_end) = (u64::from(verdict), other_end.encode());
                let (kind, port, bits) = program.map_or((0, 0, 0), ProgramAddress::numbers);
                let numbers = pair(kind.into(), port.into());
                let first = pair(link, window);
                let body = [first, verdict, session, other_end, numbers, bits, 0];
                (ANSWER, body)
            }
            Self::Ring { link } => (RING, [link.into(), 0, 0, 0, 0, 0, 0]),
            Self::Close { link } => (CLOSE, [link.into(), 0, 0, 0, 0, 0, 0]),
            Self::Lost { link } => (LOST, [link.into(), 0, 0, 0, 0, 0, 0]),
            Self::Member { nic, here } => (MEMBER, [0, nic, here.into(), 0, 0, 0, 0]),
            Self::Name { nic, part, text } => {
                let mut body = [part.into(), nic, 0, 0, 0, 0, 0];
                for (place, word) in body.iter_mut().skip(2).zip(text.chunks_exact(8)) {
                    *place = word.try_into().map_or(0, u64::from_le_bytes);
                }
                (NAME, body)
            }
        };
        Record { tag, body }
    }

    /// Decodes a record; `None` if it is no valid message.
    pub(super) fn decode(record: &Record) -> Option<Self> {
        let [first, words @ ..] = record.body;
        let (link, window) = halves(first);
        Some(match record.tag {
            CONNECT | CONNECT_WITHOUT_KEY | CONNECT_OF_PROGRAM => {
                Self::decode_connect(record.tag, link, window, words)?
            }
            ANSWER => {
                let [verdict, session, other_end, numbers, bits, _] = words;
                let (kind, port) = halves(numbers);
                let numbers =
                    u16::try_from(kind).and_then(|kind| Ok((kind, u16::try_from(port)?, bits)));
                Self::Answer {
                    link,
                    window,
                    verdict: u32::try_from(verdict).ok()?,
                    session,
                    other_end: OtherEnd::decode(other_end)?,
                    program: numbers.ok().and_then(ProgramAddress::from_numbers),
                }
            }
            RING => Self::Ring { link },
            CLOSE => Self::Close { link },
            LOST => Self::Lost { link },
            MEMBER => {
                let [nic, here, ..] = words;
                let here = here == 1;
                Self::Member { nic, here }
            }
            NAME => {
                let [nic, words @ ..] = words;
                let mut text = [0; TEXT];
                let bytes = words.map(u64::to_le_bytes);
                text.copy_from_slice(bytes.as_flattened());
                Self::Name {
                    nic,
                    part: link,
                    text,
                }
            }
            _ => return None,
        })
    }

    fn decode_connect(tag: u32, link: LinkId, window: u32, words: [u64; 6]) -> Option<Self> {
        let [from, to, endpoints, session, keys, place] = words;
        let (from_endpoint, to_endpoint) = halves(endpoints);
        let (own_key, key) = halves(keys);
        let (nic_bits, program, other_end) = match tag {
            CONNECT_OF_PROGRAM => {
                let number = |word: u64| u16::try_from(word >> NIC_BITS).unwrap_or_default();
                let program = ProgramAddress::from_numbers((number(from), number(to), place))?;
                ((1 << NIC_BITS) - 1, Some(program), OtherEnd::OtherHost)
            }
            _ => (u64::MAX, None, OtherEnd::decode(place)?),
        };
        let address = |nic, endpoint| Address {
            nic: nic & nic_bits,
            endpoint,
        };
        Some(Self::Connect {
            link,
            window,
            hello: Hello {
                from: address(from, from_endpoint),
                to: address(to, to_endpoint),
                session,
                own_key: (tag != CONNECT_WITHOUT_KEY).then_some(own_key),
                key,
                fences: false,
                process_memory: false,
                other_host: false,
                program,
                members: None,
            },
            other_end,
        })
    }
}

/// Where the other end of a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OtherEnd {
    /// A member of this host, in another region.
    #[default]
    Mediated,
    /// A member of the same region, with this number there. Both may read each other's heaps.
    InRegion(u32),
    /// An endpoint of another host, by the uplink.
    OtherHost,
}

/// The member of [`OtherEnd::OtherHost`]. No region has one of this number, so a gateway of a guest with an older Vicinity finds no heap.
const OTHER_HOST: u32 = u32::MAX;

impl OtherEnd {
    fn encode(self) -> u64 {
        match self {
            Self::Mediated => 0,
            Self::InRegion(member) => u64::from(member) + 1,
            Self::OtherHost => u64::from(OTHER_HOST) + 1,
        }
    }

    fn decode(word: u64) -> Option<Self> {
        let Some(member) = word.checked_sub(1) else {
            return Some(Self::Mediated);
        };
        Some(match u32::try_from(member).ok()? {
            OTHER_HOST => Self::OtherHost,
            member => Self::InRegion(member),
        })
    }
}

#[cfg(test)]
impl ControlMessage {
    /// A connect between endpoints without keys.
    pub(super) fn connects(link: LinkId, from: Address, to: Address) -> Self {
        let hello = Hello {
            from,
            to,
            session: 1,
            own_key: Some(0),
            key: 0,
            fences: false,
            process_memory: false,
            other_host: false,
            program: None,
            members: None,
        };
        Self::Connect {
            link,
            window: 0,
            hello,
            other_end: OtherEnd::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_address::tests::program_address;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = Address> {
        any::<(u64, u32)>().prop_map(|(nic, endpoint)| Address { nic, endpoint })
    }

    fn other_end() -> impl Strategy<Value = OtherEnd> {
        prop_oneof![
            Just(OtherEnd::Mediated),
            (0..u32::MAX).prop_map(OtherEnd::InRegion),
            Just(OtherEnd::OtherHost),
        ]
    }

    fn message() -> impl Strategy<Value = ControlMessage> {
        let keys = any::<(Option<u32>, u32, u64)>();
        prop_oneof![
            (any::<(u32, u32)>(), other_end(), address(), address(), keys).prop_map(
                |((link, window), other_end, from, to, (own_key, key, session))| {
                    let hello = Hello {
                        from,
                        to,
                        session,
                        own_key,
                        key,
                        fences: false,
                        process_memory: false,
                        other_host: false,
                        program: None,
                        members: None,
                    };
                    ControlMessage::Connect {
                        link,
                        window,
                        hello,
                        other_end,
                    }
                }
            ),
            (address(), address(), program_address()).prop_map(|(from, to, program)| {
                let nic = |address: Address| Address {
                    nic: address.nic >> 16,
                    ..address
                };
                let mut message = ControlMessage::connects(1, nic(from), nic(to));
                if let ControlMessage::Connect {
                    hello, other_end, ..
                } = &mut message
                {
                    (hello.program, *other_end) = (Some(program), OtherEnd::OtherHost);
                }
                message
            }),
            (
                any::<(u32, u32, u32, u64)>(),
                other_end(),
                prop::option::of(program_address())
            )
                .prop_map(|((link, window, verdict, session), other_end, program)| {
                    ControlMessage::Answer {
                        link,
                        window,
                        verdict,
                        session,
                        other_end,
                        program,
                    }
                }),
            any::<u32>().prop_map(|link| ControlMessage::Ring { link }),
            any::<u32>().prop_map(|link| ControlMessage::Close { link }),
            any::<u32>().prop_map(|link| ControlMessage::Lost { link }),
            any::<(u64, bool)>().prop_map(|(nic, here)| ControlMessage::Member { nic, here }),
            any::<(u64, u32, [u64; 5])>().prop_map(|(nic, part, words)| {
                let mut text = [0; TEXT];
                text.copy_from_slice(words.map(u64::to_be_bytes).as_flattened());
                ControlMessage::Name { nic, part, text }
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_decoded_as_they_were_encoded(message in message()) {
            prop_assert_eq!(ControlMessage::decode(&message.encode()), Some(message));
        }
    }

    /// A valid message with up to three words changed is refused, or decodes to a message that
    /// encodes to the same record.
    #[test]
    fn any_record_is_decoded_or_refused() {
        use std::cell::Cell;
        let word = || prop_oneof![any::<u64>(), 0..9u64];
        let changes = proptest::collection::vec((0..8usize, word()), 0..4);
        let [read, refused] = [Cell::new(0), Cell::new(0)];
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(message(), changes), |(message, changes)| {
            let mut record = message.encode();
            for (at, word) in changes {
                match record.body.get_mut(at) {
                    Some(place) => *place = word,
                    None => record.tag = u32::try_from(word).unwrap_or(u32::MAX),
                }
            }
            let count = match ControlMessage::decode(&record) {
                Some(message) => {
                    prop_assert_eq!(ControlMessage::decode(&message.encode()), Some(message));
                    &read
                }
                None => {
                    prop_assert!(!(RING..=NAME).contains(&record.tag));
                    &refused
                }
            };
            count.set(count.get() + 1);
            Ok(())
        });
        checked.unwrap();
        let counts = (read.get(), refused.get());
        assert!(counts.0 > 100 && counts.1 > 5, "{counts:?}");
    }
}
