//! Builds test frames with numbers and checksums, so that a receiver detects corrupt or exchanged
//! frames.

/// Returns the MAC address of test station `number`.
#[must_use]
pub fn mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [0x52, 0x54, 0, 0, high, low]
}

/// The broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The length of the shortest frame that [`numbered`] makes.
pub const SHORTEST: usize = 14 + 8 + 8;

/// Returns a frame of `length` bytes. Its payload is a number, bytes that are computed from the number,
/// and a checksum.
#[must_use]
pub fn numbered(to: [u8; 6], from: [u8; 6], number: u64, length: usize) -> Vec<u8> {
    assert!(length >= SHORTEST);
    let mut frame = Vec::with_capacity(length);
    frame.extend(to);
    frame.extend(from);
    frame.extend([0x88, 0xb5]); // IEEE 802 local experimental EtherType 1
    frame.extend(number.to_le_bytes());
    let mut state = number;
    while frame.len() < length - 8 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        frame.push((state >> 56) as u8);
    }
    let sum = sum(&frame);
    frame.extend(sum.to_le_bytes());
    frame
}

/// Returns the number of a frame made by [`numbered`]. Panics if any byte of the frame has changed.
#[must_use]
pub fn number(frame: &[u8]) -> u64 {
    assert!(frame.len() >= SHORTEST, "a frame of {} bytes", frame.len());
    let (body, tail) = frame.split_at(frame.len() - 8);
    let stored = u64::from_le_bytes(tail.try_into().unwrap());
    assert_eq!(stored, sum(body), "the frame is corrupt: {frame:02x?}");
    u64::from_le_bytes(frame[14..22].try_into().unwrap())
}

/// Returns the FNV-1a hash of these bytes.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Returns the Internet checksum of these bytes, folded and complemented (RFC 1071).
#[must_use]
pub fn internet_checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the sum of an IPv4 pseudo header for `length` bytes of a protocol, not complemented.
#[must_use]
pub fn pseudo_sum(ip: &[u8], protocol: u8, length: usize) -> u32 {
    let words = ip[12..20].chunks(2);
    words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum::<u32>()
        + u32::from(protocol)
        + length as u32
}

/// The offset of the TCP header in a frame made by [`tcp`].
pub const TCP_START: usize = 14 + 20;

/// Returns a TCP over IPv4 frame with these `payload` bytes. The TCP checksum is partial: its field
/// contains the sum of the pseudo header.
#[must_use]
pub fn tcp(to: [u8; 6], from: [u8; 6], sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![
        0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let length = 20 + 20 + payload.len();
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    let sum = internet_checksum(0, &ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut tcp = vec![0; 20];
    tcp[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = 0x10; // ACK
    let partial = !internet_checksum(pseudo_sum(&ip, 6, 20 + payload.len()), &[]);
    tcp[16..18].copy_from_slice(&partial.to_be_bytes());
    let mut frame = Vec::new();
    frame.extend(to);
    frame.extend(from);
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame.extend(tcp);
    frame.extend(payload);
    frame
}

/// Checks the IPv4 and TCP checksums of a frame, and returns its sequence number and payload. Panics if
/// a checksum is wrong.
#[must_use]
pub fn checked_tcp(frame: &[u8]) -> (u32, Vec<u8>) {
    let ip = &frame[14..34];
    assert_eq!(internet_checksum(0, ip), 0, "IPv4 header checksum");
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = &frame[34..14 + length];
    let start = pseudo_sum(ip, 6, tcp.len());
    assert_eq!(internet_checksum(start, tcp), 0, "TCP checksum");
    let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
    (sequence, tcp[20..].to_vec())
}
