//! Packets of guests' socket devices: the check of headers, the table of connections, and credit.
//!
//! An input is a list of packets. Each has one byte that selects the sender (and makes most headers
//! valid), and then the header.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use vsock::connection::{Connections, Ends, Verdict};
use vsock::credit::Credit;
use vsock::header::{HOST_CID, Header};
use vsock::packet::{Address, Packet, reset_of_invalid};

/// Bytes behind a header in its chain.
const ROOM: u32 = 4096;

fuzz_target!(|data: &[u8]| {
    let (mut connections, now) = (Connections::default(), Instant::now());
    let mut credit = Credit::new(65_536);
    let allows = |from: Address, to: Address| (from.cid, to.cid) == (3, 4);
    for bytes in data.chunks_exact(1 + Header::SIZE) {
        let (selector, bytes) = bytes.split_first().expect("a selector");
        let own = 3 + u32::from(selector & 1);
        let mut header = Header::from_bytes(bytes.try_into().expect("a header"));
        assert_eq!(header.to_bytes(), bytes);
        if selector & 2 == 0 {
            header.src_cid = own.into();
            header.dst_cid = [2, 3, 4, 5][usize::from(selector >> 2 & 3)];
            header.op = header.op % 8;
            header.kind = 1 + header.kind % 2;
            header.src_port %= 4;
            header.dst_port %= 4;
            header.len %= ROOM;
        }
        if credit.update(header.buf_alloc, header.fwd_cnt).is_ok() {
            let count = credit.available().min(header.len);
            credit.sent(count);
            assert!(credit.available() <= header.buf_alloc);
        }
        let packet = match Packet::check(&header, own, ROOM, selector & 16 == 0) {
            Ok(packet) => packet,
            Err(invalid) => {
                let reset = reset_of_invalid(&header, own, invalid);
                assert!(reset.is_none_or(|reset| reset.dst_cid == u64::from(own)));
                continue;
            }
        };
        assert!(packet.source.cid == own && packet.destination.cid != own);
        let ends = Ends::of(packet.source, packet.destination);
        let before = connections.get(ends).copied();
        match connections.judge(&packet, now, allows) {
            Verdict::Begin => {
                let with_host = packet.destination.cid == HOST_CID;
                assert!(with_host || allows(packet.source, packet.destination));
            }
            Verdict::Forward => assert!(before.is_some()),
            Verdict::End => {
                assert!(connections.remove(ends).is_some() && before.is_some());
            }
            Verdict::Refuse(_) | Verdict::Ignore => {
                assert_eq!(connections.get(ends).copied(), before);
            }
        }
    }
});
