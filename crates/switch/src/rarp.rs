//! The RARP frame that announces a VM's new location to other switches (RFC 903).

use vhost::net_header::NetHeader;

use crate::context::WorkerContext;
use crate::control::DropReason;
use crate::deferred::Deferred;
use crate::fdb::FdbKey;
use crate::frame::{Head, Rest};
use crate::guard::Checked;
use crate::limits::MAX_LEARNT_PER_PORT;
use crate::mac::Mac;
use crate::multicast::FloodSource;
use crate::switch::Switch;

impl Switch {
    /// Announces a VM after a migration (vhost-user, `SEND_RARP`). The front-end chooses the address, so
    /// the port's rules apply to it as to a frame.
    pub fn announce(&mut self, context: &mut WorkerContext, number: u16, mac: Mac) {
        self.note_new_vm(number);
        let Some(port) = self.port(number) else {
            return;
        };
        let checked = match &port.guard {
            // A group address is not the address of a station.
            _ if mac.is_group() => Err(DropReason::MacSpoofed),
            Some(guard) => guard.announcement(mac),
            None => Ok(Checked::default()),
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(reason) => return port.count_drops(0, reason, 1),
        };
        let key = FdbKey::new(mac, checked.tci.vlan());
        self.table
            .learn(key, number, context.seconds, MAX_LEARNT_PER_PORT);
        let frame = frame(mac);
        if let Some((head, rest)) = Head::of_private(NetHeader::default(), &frame) {
            let origin = FloodSource {
                port: number,
                pair: 0,
                deferred: &Deferred::default(),
                limits: &port.limits,
                checked,
            };
            // The port's flood limits apply, because a front-end may request this as often as it likes.
            if let Err(reason) = self.flood(context, origin, &head, &Rest::Private(rest)) {
                port.count_drops(0, reason, 1);
            }
        }
        self.report_faults(&mut context.faults);
    }
}

/// Returns a broadcast RARP request from `mac`, padded to the shortest Ethernet frame.
#[must_use]
fn frame(mac: Mac) -> [u8; 60] {
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
