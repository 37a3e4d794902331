//! Checked access to the big-endian fields of a frame, and constants of the protocols.

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = 14;
/// Bytes of one VLAN tag (IEEE 802.1Q).
pub(super) const VLAN_TAG: usize = 4;
/// EtherTypes.
pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherTypes of VLAN tags: customer (802.1Q) and service (802.1ad).
pub(super) const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];

/// IP protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// Offset of the checksum in a TCP header (RFC 9293, 3.1).
pub(super) const TCP_CHECKSUM: usize = 16;
/// Offset of the checksum in a UDP header (RFC 768).
pub(super) const UDP_CHECKSUM: usize = 6;

/// Returns the byte at `at`.
pub(super) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// Returns the 16-bit field at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the 32-bit field at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at`.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value;
    Some(())
}

/// VLAN tags that may precede the EtherType: a service and a customer one (802.1ad).
const MAX_VLAN_TAGS: usize = 2;

/// Returns the EtherType behind at most two VLAN tags, and the offset of the packet. Returns `None` when
/// the frame is too short.
pub(super) fn ether_type(frame: &[u8]) -> Option<(u16, usize)> {
    let mut start = ETHERNET;
    for _ in 0..MAX_VLAN_TAGS {
        if !ETHERTYPE_VLAN.contains(&u16_at(frame, start - 2)?) {
            break;
        }
        start += VLAN_TAG;
    }
    Some((u16_at(frame, start - 2)?, start))
}
