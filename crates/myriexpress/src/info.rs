//! `mx_get_info`: what a program may ask for.

use message::limits::{ENDPOINTS, MEDIUM};

use crate::codes::{Result, Return};
use crate::core::Counters;
use crate::library;
use crate::limits::TEXT;
use crate::shared::Shared;
use crate::table;

const LABELS: [&str; 4] = [
    "sends started",
    "receives started",
    "connects started",
    "requests that did not succeed",
];

/// `MX_NET_ETHER`: the nearest kind of network there is.
const ETHERNET: u32 = 1;
/// `MX_SPEED_OPEN_MX`: no Myrinet.
const SPEED: u32 = 2;
/// Up to here the reference sends with the fewest copies.
const PIO_SEND_MAX: u32 = 128;
/// No NUMA node.
const ANY_NODE: u32 = u32::MAX;

/// The answer to a key, as it lies in memory. `input` is what the program gave with it, if
/// anything: for most keys about a board its number.
pub(crate) fn answer(shared: Option<&Shared>, key: u32, input: Option<&[u8]>) -> Result<Vec<u8>> {
    let library = library::get()?;
    let number = |number: u32| Ok(number.to_ne_bytes().to_vec());
    match key {
        1 => number(1),
        2 => Ok([library.board.nic(), 0].map(u64::to_ne_bytes).concat()),
        3 => number(ENDPOINTS),
        4 => number(u32::MAX),
        5 => number(u32::try_from(LABELS.len()).unwrap_or_default()),
        6 => Ok(LABELS.map(text).concat()),
        7 => counters(shared, input),
        8 => about_board(input).map(|()| text("Vicinity").to_vec()),
        9 => about_board(input).map(|()| text(env!("CARGO_PKG_NAME")).to_vec()),
        10 => {
            about_board(input)?;
            Ok(text(&format!("{:012x}", library.board.nic())).to_vec())
        }
        11 => number(1),
        12 => number(PIO_SEND_MAX),
        13 => number(u32::try_from(MEDIUM).unwrap_or(u32::MAX)),
        14 => about_board(input).and_then(|()| number(ANY_NODE)),
        15 => about_board(input).and_then(|()| number(ETHERNET)),
        16 => about_board(input).and_then(|()| number(SPEED)),
        _ => Err(Return::BAD_INFO_KEY),
    }
}

/// Keys that are answered in full or not at all; a text is cut to the memory there is.
pub(crate) fn is_text(key: u32) -> bool {
    (8..=10).contains(&key)
}

/// A text with its NUL, and zeros.
fn text(text: &str) -> [u8; TEXT] {
    let mut bytes = [0; TEXT];
    let shown = text.bytes().take(TEXT - 1);
    for (place, byte) in bytes.iter_mut().zip(shown) {
        *place = byte;
    }
    bytes
}

/// A board's number, in as many bytes as the program has for it: 0, the only one.
fn about_board(input: Option<&[u8]>) -> Result {
    match input.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)) {
        true => Ok(()),
        false => Err(Return::BOARD_UNKNOWN),
    }
}

/// Of one endpoint, or of all on a board.
fn counters(shared: Option<&Shared>, input: Option<&[u8]>) -> Result<Vec<u8>> {
    let mut sum = Counters::default();
    match shared {
        Some(shared) => sum.add(&shared.enter()?.core()?.counters),
        None => {
            about_board(input)?;
            for shared in table::all() {
                // One that is closed meanwhile is not counted.
                if let Ok(mut entered) = shared.enter() {
                    sum.add(&entered.core()?.counters);
                }
            }
        }
    }
    Ok(sum.list().map(u32::to_ne_bytes).concat())
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.sends = self.sends.wrapping_add(other.sends);
        self.receives = self.receives.wrapping_add(other.receives);
        self.connects = self.connects.wrapping_add(other.connects);
        self.failed = self.failed.wrapping_add(other.failed);
    }

    /// In the order of the labels.
    fn list(&self) -> [u32; LABELS.len()] {
        [self.sends, self.receives, self.connects, self.failed]
    }
}
