//! A scripted peer with a region of its own.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests; every binary uses its own part of this"
)]

use std::path::Path;

use message::{Board, Endpoint, Peer};
use window::attach::Channel;
use window::lane::Record;
use window::layout::{LaneSize, Layout};
use window::region::{Region, RegionLayout};
use window::{Ends, Side, Window};

use crate::common::scripted_peer::{self, MEMBER_HEAP};

/// Units of each heap: 1 MiB.
pub const UNITS: u32 = 16;

/// A peer that claims to be remote, and sends any offer.
pub struct RegionPeer {
    _channel: Channel,
    pub ends: Ends,
    pub region: Region,
    pub peer: Peer,
}

impl RegionPeer {
    /// With a window inside or outside a region, and with or without members of it.
    pub fn connect(
        board: &Path,
        victim: &mut Endpoint,
        inside: bool,
        members: Option<[u32; 2]>,
    ) -> Self {
        let lane = LaneSize {
            slots: 8,
            data: 4096,
        };
        let links = [message::limits::MESSAGES, message::limits::CONTROL];
        let region = Region::create(RegionLayout {
            members: 2,
            links: 1,
            units: UNITS,
            control: Layout::new([lane, lane]).unwrap(),
            link: Layout::new(links).unwrap(),
        });
        let region = region.unwrap();
        let window = match inside {
            true => region.link(0).unwrap(),
            false => Window::create(Layout::new(links).unwrap()).unwrap(),
        };
        window.reset().unwrap();
        let from = message::Address {
            nic: Board::nic_of("far"),
            endpoint: 1,
        };
        let (channel, peer) = scripted_peer::connect(board, victim, from, &window, 0, members);
        Self {
            _channel: channel,
            ends: window.ends(Side::Creator).unwrap(),
            region,
            peer,
        }
    }
}

impl RegionPeer {
    pub fn offer(&mut self, length: u64, unit: u32, number: u32) {
        let place = u64::from(number) << 32 | u64::from(unit);
        let body = [1, length, 5, place, 0, 0, 0];
        self.ends.producers[0].push(&Record {
            tag: MEMBER_HEAP,
            body,
        });
    }
}
