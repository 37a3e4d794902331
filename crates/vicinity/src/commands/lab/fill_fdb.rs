//! Fills a switch's FDB by sending frames from many addresses into the bridge of its
//! uplink.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use crate::commands::failure::Failure;
use crate::serve::interface::tap;

/// The tap that the frames are sent through. The kernel removes it when this process ends.
const TAP: &str = "fill0";

/// Frames sent at a time: fewer than the 1000 frames that fit into a tap's queue.
const BURST: u32 = 200;

/// An Ethernet frame without a virtio-net header.
const FRAME: usize = 60;
const HEADER: usize = 12;

/// Local experimental EtherType (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];

/// Sends a frame from each of `count` addresses. Run inside the bridge's network namespace.
pub(crate) fn fill(count: u32) -> Result<(), Failure> {
    let tap = tap::open(TAP).map_err(|error| Failure::Usage(error.to_string()))?;
    // The bridge must not learn the addresses, or it would not forward the frames to the uplink.
    for words in [
        &["ip", "link", "set", TAP, "master", "br0", "up"][..],
        &["bridge", "link", "set", "dev", TAP, "learning", "off"],
    ] {
        let (program, rest) = words.split_first().unwrap_or((&"true", &[]));
        let mut command = vm_harness::host::command(program);
        command.args(rest);
        vm_harness::host::run(command)?;
    }
    let mut tap = File::from(tap);
    for number in 0..count {
        tap.write_all(&frame(number))?;
        if number % BURST == BURST - 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Returns a frame from address `number` to address 0, which is behind the same tap as all of them.
fn frame(number: u32) -> [u8; HEADER + FRAME] {
    let mut frame = [0; HEADER + FRAME];
    let [a, b, c, d] = number.to_be_bytes();
    let parts = [[2, 0x76, 0, 0, 0, 0], [2, 0x76, a, b, c, d]];
    let bytes = parts.iter().flatten().chain(&TYPE);
    for (slot, byte) in frame.iter_mut().skip(HEADER).zip(bytes) {
        *slot = *byte;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_an_address_of_its_own() {
        let (one, two) = (frame(1), frame(0x0102_0304));
        assert_eq!(one[HEADER..HEADER + 6], [2, 0x76, 0, 0, 0, 0]);
        assert_eq!(
            two[HEADER + 6..HEADER + 14],
            [2, 0x76, 1, 2, 3, 4, 0x88, 0xb5]
        );
        assert_ne!(one, two);
    }
}
