//! ARP requests for a VM's address, as a neighbour sends them (RFC 826).

use front_end::frame::BROADCAST;

/// Returns a request from `mac` and `ip` for the owner of `target`, padded to Ethernet's minimum
/// length.
pub(crate) fn request(mac: [u8; 6], ip: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let ethernet = [&BROADCAST[..], &mac, &[0x08, 0x06]].concat();
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &ip, &[0; 6], &target].concat();
    let mut frame = [ethernet, arp].concat();
    frame.resize(60, 0);
    frame
}

/// Returns whether `frame` is the answer to `mac` from the owner of `target`.
pub(crate) fn is_answer(frame: &[u8], mac: [u8; 6], target: [u8; 4]) -> bool {
    frame.len() >= 42
        && frame[..6] == mac
        && frame[12..14] == [0x08, 0x06]
        && frame[20..22] == [0, 2]
        && frame[28..32] == target
}
