//! Parses group membership messages: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810).
//!
//! The input is a whole packet in private memory, without its Ethernet header. The switch accepts a message
//! only if every host that receives it accepts it too (RFC 4541, 2.1.1 and 3): its lengths and checksums
//! are right, and its source, destination and options are those of such messages. Otherwise a guest could
//! make the switch wait for reports to a query that no host accepts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::headers::{u8_at, u16_at, v4_at, v6_at};

/// Longest packet that is parsed: longer than the largest reports of hosts with the usual MTU.
pub const MAX_PACKET: usize = 2048;

/// Longest response time that is accepted, in seconds. The default of RFC 3376, 8.3, is 10.
const MAX_RESPONSE: u32 = 60;

/// The protocol family of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4, with IGMP.
    V4,
    /// IPv6, with MLD.
    V6,
}

/// A group membership message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'p> {
    /// A query of a router.
    Query(Query),
    /// A report of a host.
    Report(Report<'p>),
    /// Another message, or an invalid one.
    Other,
}

/// A membership query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// A general query: about all groups, and to all hosts.
    pub general: bool,
    /// A router sent the query, not a snooping switch (RFC 4541, 2.1.1).
    pub from_router: bool,
    /// Seconds within which hosts answer.
    pub response: u32,
}

/// The membership changes in one message of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'p> {
    family: Family,
    records: Records<'p>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Records<'p> {
    One(Option<Change>),
    /// The number of records, and their bytes.
    Many(u16, &'p [u8]),
}

/// A membership change of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The host is a member of the group.
    Join(IpAddr),
    /// The host has left the group.
    Leave(IpAddr),
}

/// Returns whether a packet of a family is a group membership message. `bytes` are its first bytes, up to
/// [`FIRST`].
#[must_use]
pub fn concerns_groups(family: Family, bytes: &[u8]) -> bool {
    match family {
        Family::V4 => u8_at(bytes, 9) == Some(IGMP),
        // RFC 2710, 3: MLD is always behind a hop-by-hop header, which has eight bytes.
        Family::V6 => {
            let kind = u8_at(bytes, MLD_AT);
            let types = [
                LISTENER_QUERY,
                LISTENER_REPORT,
                LISTENER_DONE,
                LISTENER_REPORT_2,
            ];
            (u8_at(bytes, 6), u8_at(bytes, 40)) == (Some(0), Some(ICMPV6))
                && kind.is_some_and(|kind| types.contains(&kind))
        }
    }
}

/// Bytes that [`concerns_groups`] reads.
pub const FIRST: usize = MLD_AT + 1;

/// Parses a group membership message.
#[must_use]
pub fn read(family: Family, packet: &[u8]) -> Message<'_> {
    let message = match family {
        Family::V4 => igmp(packet),
        Family::V6 => mld(packet),
    };
    message.unwrap_or(Message::Other)
}

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
/// RFC 2710, 3.1, and RFC 3810, 5.2.
const LISTENER_QUERY: u8 = 130;
const LISTENER_REPORT: u8 = 131;
const LISTENER_DONE: u8 = 132;
const LISTENER_REPORT_2: u8 = 143;
/// Offset of the MLD message: behind the IPv6 header and the hop-by-hop header with the router alert.
const MLD_AT: usize = 48;

/// Parses IGMP (RFC 3376, 4).
fn igmp(packet: &[u8]) -> Option<Message<'_>> {
    let first = u8_at(packet, 0)?;
    let header = usize::from(first & 0xf) * 4;
    let length = usize::from(u16_at(packet, 2)?);
    let whole = u16_at(packet, 6)? & 0x3fff == 0;
    let (ip, message) = packet.get(..length)?.split_at_checked(header)?;
    let sound = first >> 4 == 4 && header >= 20 && whole && sum(0, ip) == VALID_SUM;
    if !sound || sum(0, message) != VALID_SUM {
        return None;
    }
    let (source, destination) = (v4_at(ip, 12)?, v4_at(ip, 16)?);
    let group = v4_at(message, 4)?;
    let one = |change: fn(IpAddr) -> Change| {
        let group = IpAddr::from(group);
        let records = Records::One(reportable(group).then(|| change(group)));
        Some(Message::Report(Report {
            family: Family::V4,
            records,
        }))
    };
    match u8_at(message, 0)? {
        0x11 => {
            let code = u8_at(message, 1)?;
            let tenths = match (message.len() >= 12, code) {
                // RFC 2236, 2.5: 0 is a query of IGMPv1, whose response time is ten seconds.
                (_, 0) => 100,
                (true, 128..) => floating(code.into(), 4),
                (_, code) => code.into(),
            };
            Some(Message::Query(Query {
                general: group.is_unspecified() && destination == Ipv4Addr::new(224, 0, 0, 1),
                from_router: !source.is_unspecified(),
                response: tenths.div_ceil(10).min(MAX_RESPONSE),
            }))
        }
        0x12 | 0x16 => one(Change::Join),
        0x17 => one(Change::Leave),
        0x22 => many(Family::V4, u16_at(message, 6)?, message.get(8..)?),
        _ => None,
    }
}

/// Parses MLD (RFC 3810, 5).
fn mld(packet: &[u8]) -> Option<Message<'_>> {
    let length = usize::from(u16_at(packet, 4)?);
    let message = packet.get(MLD_AT..40 + length)?;
    // Version; hop-by-hop header; hop limit 1; router alert for MLD (RFC 2711, 2.1), and padding.
    let sound = u8_at(packet, 0)? >> 4 == 6
        && (u8_at(packet, 6)?, u8_at(packet, 7)?) == (0, 1)
        && matches!(
            packet.get(40..MLD_AT)?,
            [ICMPV6, 0, 5, 2, 0, 0, 1, 0] | [ICMPV6, 0, 1, 0, 5, 2, 0, 0]
        );
    let length = u32::try_from(message.len()).ok()?;
    let pseudo = sum_of(packet.get(8..40)?) + length + u32::from(ICMPV6);
    if !sound || sum(pseudo, message) != VALID_SUM {
        return None;
    }
    let (source, destination) = (v6_at(packet, 8)?, v6_at(packet, 24)?);
    let local = source.is_unicast_link_local();
    let one = |change: fn(IpAddr) -> Change| {
        let group = IpAddr::from(v6_at(message, 8)?);
        let records = Records::One(reportable(group).then(|| change(group)));
        Some(Message::Report(Report {
            family: Family::V6,
            records,
        }))
    };
    match u8_at(message, 0)? {
        // RFC 3810, 5.1.14: hosts ignore queries from any other source.
        LISTENER_QUERY if local => {
            let code = u16_at(message, 4)?;
            let thousandths = match (message.len() >= 28, code) {
                (true, 32_768..) => floating(code.into(), 12),
                (_, code) => code.into(),
            };
            let group = v6_at(message, 8)?;
            Some(Message::Query(Query {
                general: group.is_unspecified() && destination == ALL_NODES,
                from_router: true,
                response: thousandths.div_ceil(1000).clamp(1, MAX_RESPONSE),
            }))
        }
        LISTENER_REPORT => one(Change::Join),
        LISTENER_DONE => one(Change::Leave),
        LISTENER_REPORT_2 => many(Family::V6, u16_at(message, 6)?, message.get(8..)?),
        _ => None,
    }
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn many(family: Family, count: u16, bytes: &[u8]) -> Option<Message<'_>> {
    let records = Records::Many(count, bytes);
    Some(Message::Report(Report { family, records }))
}

/// Decodes a floating-point code with a mantissa of `mantissa` bits and an exponent of three bits (RFC
/// 3376, 4.1.1, and RFC 3810, 5.1.3).
fn floating(code: u32, mantissa: u32) -> u32 {
    let low = code & ((1 << mantissa) - 1);
    (low | 1 << mantissa) << ((code >> mantissa & 7) + 3)
}

/// Returns whether memberships of a group are tracked. Groups whose frames go to all ports are not (RFC
/// 4541, 2.1.2 and 3). Neither are the groups of neighbour discovery, which must work even for a host whose
/// report was lost.
fn reportable(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && !matches!(group.octets(), [224, 0, 0, _]),
        IpAddr::V6(group) => match group.segments() {
            [0xff02, 0, 0, 0, 0, 0, 0, 1] | [0xff02, 0, 0, 0, 0, 1, 0xff00..=0xffff, _] => false,
            // Groups of interface-local scope do not leave the host (RFC 4291, 2.7).
            [first, ..] => group.is_multicast() && first & 0xf > 1,
        },
    }
}

impl<'p> Report<'p> {
    /// Returns the changes, record by record, up to the first invalid record.
    pub fn changes(self) -> impl Iterator<Item = Change> + 'p {
        let Self { family, records } = self;
        let (one, count, bytes) = match records {
            Records::One(change) => (change, 0, &[][..]),
            Records::Many(count, bytes) => (None, count, bytes),
        };
        let mut rest = bytes;
        let many = (0..count).map_while(move |_| {
            let (change, behind) = record(family, rest)?;
            rest = behind;
            Some(change)
        });
        one.into_iter().chain(many.flatten())
    }
}

/// Parses a group record (RFC 3376, 4.2.4, and RFC 3810, 5.2.4); returns the change and the bytes behind it.
fn record(family: Family, bytes: &[u8]) -> Option<(Option<Change>, &[u8])> {
    let (kind, extra) = (u8_at(bytes, 0)?, u8_at(bytes, 1)?);
    let sources = usize::from(u16_at(bytes, 2)?);
    let (group, address) = match family {
        Family::V4 => (IpAddr::from(v4_at(bytes, 4)?), 4),
        Family::V6 => (IpAddr::from(v6_at(bytes, 4)?), 16),
    };
    let length = 4 + address * (1 + sources) + 4 * usize::from(extra);
    let behind = bytes.get(length..)?;
    let change = match (kind, sources) {
        // The host includes no source: it is not a member.
        (1 | 3, 0) => Some(Change::Leave(group)),
        (1..=5, _) => Some(Change::Join(group)),
        // The host blocks some sources; it may be a member for others.
        _ => None,
    };
    Some((change.filter(|_| reportable(group)), behind))
}

/// The sum of bytes that include a correct checksum (RFC 1071).
const VALID_SUM: u16 = 0xffff;

/// Returns the one's complement sum of these bytes and an earlier sum, not complemented.
fn sum(before: u32, bytes: &[u8]) -> u16 {
    let sum = u64::from(before) + u64::from(sum_of(bytes));
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    // Two folds suffice for 2048 bytes.
    u16::try_from(folded).unwrap_or(0)
}

fn sum_of(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    words.fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests;
