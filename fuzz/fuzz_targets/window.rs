//! A hostile peer that writes anything into a window while this side uses it, and that sends any
//! header.
//!
//! The input begins with a header for the window. Steps of four bytes follow: an action, and its
//! offset or value. A step of the peer writes one word anywhere in the window.
#![no_main]

use libfuzzer_sys::fuzz_target;
use window::lane::Record;
use window::layout::{LaneSize, Layout};
use window::{Side, Window};

const SIZE: LaneSize = LaneSize {
    slots: 8,
    data: 4096,
};

fuzz_target!(|data: &[u8]| {
    let Some((header, steps)) = data.split_first_chunk::<32>() else {
        return;
    };
    if let Ok(layout) = Layout::from_header(header) {
        assert_eq!(Layout::from_header(&layout.header()), Ok(layout));
    }
    let layout = Layout::new([SIZE, SIZE]).expect("a layout");
    let window = Window::create(layout).expect("a window");
    let memory = window.bytes().expect("its memory");
    let mut ends = window.ends(Side::Attacher).expect("its ends");
    let mut bytes = [0; 256];
    for step in steps.chunks_exact(4) {
        let [what, a, b, c] = [step[0], step[1], step[2], step[3]];
        let lane = usize::from(what & 1);
        let number = u64::from(u32::from_le_bytes([a, b, c, 0]));
        match what >> 1 {
            0 => {
                let length = u32::from(a);
                if let Ok(Some(room)) = ends.producers[lane].room(length) {
                    assert!(u64::from(room.offset) + u64::from(length) <= 4096);
                    let text = &bytes[..length as usize];
                    let written = ends.producers[lane].write(u64::from(room.offset), text);
                    assert!(written.is_some());
                    ends.producers[lane].push_with_data(&Record::default(), room);
                }
            }
            1 => {
                if let Some(record) = ends.consumers[lane].pop() {
                    let offset = record.body[0];
                    let read = ends.consumers[lane].read(offset, &mut bytes);
                    assert_eq!(read.is_some(), offset <= 4096 - 256);
                }
                ends.consumers[lane].release();
            }
            2 => {
                ends.sleeper.prepare_to_wait(true);
                ends.sleeper.finish_wait();
                let _ = ends.ringer.needs_wakeup();
            }
            // Two bytes of offset within the control pages and rings, one of value.
            _ => {
                let word = (u64::from(what) << 24 | u64::from(c)).to_le_bytes();
                let _ = memory.write(number & 0xffff, &word);
            }
        }
    }
});
