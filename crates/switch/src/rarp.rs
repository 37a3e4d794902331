//! The RARP frame that announces a VM's new location to other switches (RFC 903).

use crate::mac::Mac;

/// Returns a broadcast RARP request from `mac`, padded to the shortest Ethernet frame.
#[must_use]
pub(crate) fn frame(mac: Mac) -> [u8; 60] {
    let station = mac.octets();
    // EtherType RARP; hardware Ethernet, protocol IPv4, lengths 6 and 4, request reverse.
    let fixed = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    let unknown_ip = [0; 4];
    let fields: [&[u8]; 7] = [
        &[0xff; 6],
        &station,
        &fixed,
        &station,
        &unknown_ip,
        &station,
        &unknown_ip,
    ];
    let mut frame = [0; 60];
    let mut bytes = fields.into_iter().flatten();
    for (to, from) in frame.iter_mut().zip(&mut bytes) {
        *to = *from;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc903_request_reverse() {
        let mac = Mac::from_octets([0x52, 0x54, 0, 1, 2, 3]);
        let frame = frame(mac);
        assert_eq!(frame[..6], [0xff; 6]);
        assert_eq!(frame[6..12], mac.octets());
        assert_eq!(frame[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!(frame[22..28], mac.octets());
        assert_eq!(frame[32..38], mac.octets());
    }
}
