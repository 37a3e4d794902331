//! `mx_get_info`.

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

/// `MX_NET_ETHER`: the closest network type that MX has.
const ETHERNET: u32 = 1;
/// `MX_SPEED_OPEN_MX`: the speed that is not one of a Myrinet.
const SPEED: u32 = 2;
/// Up to this length, the reference implementation sends with the fewest copies.
const PIO_SEND_MAX: u32 = 128;
/// The value for no particular NUMA node.
const ANY_NODE: u32 = u32::MAX;

/// Returns the value of a key, in its layout for C. `input` is the program's `in_val`, which for
/// most keys is the number of a board.
pub(crate) fn value(shared: Option<&Shared>, key: u32, input: Option<&[u8]>) -> Result<Vec<u8>> {
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

/// Whether the value is text, which is cut to the program's buffer. Other values are returned in
/// full or not at all.
pub(crate) fn is_text(key: u32) -> bool {
    (8..=10).contains(&key)
}

/// Returns a text with its NUL, padded with zeros.
fn text(text: &str) -> [u8; TEXT] {
    let mut bytes = [0; TEXT];
    let truncated = text.bytes().take(TEXT - 1);
    for (target, byte) in bytes.iter_mut().zip(truncated) {
        *target = byte;
    }
    bytes
}

/// Checks that `input`, an integer of any size, is the number of the only board: 0.
fn about_board(input: Option<&[u8]>) -> Result {
    match input.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)) {
        true => Ok(()),
        false => Err(Return::BOARD_UNKNOWN),
    }
}

/// Returns the counters of one endpoint, or the sum of all on a board.
fn counters(shared: Option<&Shared>, input: Option<&[u8]>) -> Result<Vec<u8>> {
    let mut sum = Counters::default();
    match shared {
        Some(shared) => sum.add(&shared.lock_for_call()?.core()?.counters),
        None => {
            about_board(input)?;
            for shared in table::all() {
                // An endpoint that another thread closes meanwhile is not counted.
                if let Ok(mut locked) = shared.lock_for_call() {
                    sum.add(&locked.core()?.counters);
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

    /// The counters in the order of [`LABELS`].
    fn list(&self) -> [u32; LABELS.len()] {
        [self.sends, self.receives, self.connects, self.failed]
    }
}
