//! Property tests must reach the code that they name. A test that starts from arbitrary bytes or numbers
//! seldom does: uniform bytes are practically never a header with a magic number. So a test starts from valid
//! input, changes it a little, and counts how often the code took the interesting branch
//! (`proptest::test_runner::TestRunner` and a `Cell` for each branch). If every arbitrary case is one that
//! the test is for, the list below has the test.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Tests in `proptest!` with arbitrary bytes or numbers, and the reason why every case is one that
/// the test is for.
const EVERY_CASE: [(&str, &str); 28] = [
    (
        "a_random_driver_and_the_device_agree",
        "its steps are a driver's; an index begins anywhere",
    ),
    (
        "agrees_with_a_map",
        "its steps are of a few addresses; a key is any",
    ),
    (
        "an_invalid_frame_ends_the_program",
        "its frames are valid but for a byte and the length",
    ),
    (
        "an_ip_length_of_zero_means_the_whole_frame",
        "its frames are valid; a seed",
    ),
    (
        "any_offer_ends_the_receive",
        "what each offer is answered is computed for it",
    ),
    (
        "mxoe_2_frames_are_read_as_they_were_written",
        "every packet is one",
    ),
    (
        "mxoe_4_everything_arrives_once_in_order_under_impairment",
        "a seed",
    ),
    (
        "mxoe_5_3_blocks_and_frames_cover_the_message_once",
        "every length and offset has frames",
    ),
    (
        "no_address_resolves_outside_a_heap",
        "the last two of its three places are near the heap's end",
    ),
    ("no_work_is_charged_twice", "any counts are counts"),
    (
        "nothing_is_written_behind_the_end_of_a_heap",
        "one of its two offsets is near the heap's end",
    ),
    ("numbers_round_trip", "any numbers are a message's"),
    ("regions_round_trip", "any numbers are a region's"),
    (
        "rfc1071_a_filled_frame_verifies_with_its_pseudo_header",
        "any bytes have a sum",
    ),
    ("rfc1071_a_word_adds_like_its_bytes", "any bytes have a sum"),
    (
        "rfc1071_every_checksum_of_every_segment_verifies",
        "its frames are valid; a seed",
    ),
    (
        "rfc1071_the_sum_equals_the_reference",
        "any bytes have a sum",
    ),
    (
        "rfc9293_3_4_payloads_in_order_are_the_senders_bytes",
        "its frames are valid; a seed",
    ),
    (
        "segments_do_not_depend_on_each_other_and_stay_in_their_buffer",
        "its frames are valid; a seed",
    ),
    (
        "spec_2_7_7_2_event_arithmetic_holds_everywhere",
        "an index is any, the others are near it",
    ),
    (
        "use_wait_and_block_are_all_of_a_threads_time",
        "any times are a thread's",
    ),
    (
        "virtio_5_1_6_2_segments_are_those_of_a_sender_without_offloads",
        "its frames are valid; a seed",
    ),
    (
        "virtio_5_1_6_4_1_every_mix_of_sender_and_receiver",
        "each of 64 mixes is either whole or not; a seed",
    ),
    (
        "a_tagged_frame_leaves_the_switch_unchanged",
        "any bytes are a body",
    ),
    ("lines_round_trip", "any numbers are a line's"),
    (
        "trials_are_few_whatever_they_measure",
        "any durations are those of a round's trials",
    ),
    (
        "what_passes_is_for_the_endpoints_or_for_the_host",
        "its frames are valid, half of them for its endpoints",
    ),
    (
        "words_have_the_bytes_of_the_pieces",
        "any pieces are a message's",
    ),
];

/// The name and the arguments of a test in a `proptest!`.
struct Property {
    file: PathBuf,
    name: String,
    arguments: String,
}

impl Property {
    /// Returns whether its arguments are arbitrary bytes or numbers.
    fn is_of_anything(&self) -> bool {
        let bare = |argument: &str| {
            let of = argument.split_once(':').map(|(_, of)| of.trim());
            let number = |of: &str| ["u8", "u16", "u32", "u64", "usize"].contains(&of);
            of.is_some_and(|of| number(of) || of.starts_with('['))
        };
        self.arguments.contains("any::<u")
            || self.arguments.contains("any::<[")
            || self.arguments.split(',').any(bare)
    }
}

/// Returns the text from behind an opening bracket to the bracket that closes it.
fn inside(text: &str, open: char, close: char) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += i32::from(letter == open) - i32::from(letter == close);
        depth == 0
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn properties(file: &Path, found: &mut Vec<Property>) {
    let text = fs::read_to_string(file).unwrap();
    for block in text.split("proptest! {").skip(1) {
        let block = inside(block, '{', '}');
        for test in block.split("#[test]").skip(1) {
            let Some((_, test)) = test.split_once("fn ") else {
                continue;
            };
            let (name, rest) = test.split_once('(').unwrap();
            found.push(Property {
                file: file.to_owned(),
                name: name.to_owned(),
                arguments: inside(rest, '(', ')').to_owned(),
            });
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<Property>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            properties(&path, found);
        }
    }
}

#[test]
fn every_property_test_reaches_what_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["crates", "guest"] {
        sources(&root.join(folder), &mut found);
    }
    assert!(found.len() > 60, "the sources were not found");
    let exists = |name: &str| found.iter().any(|property| property.name == name);
    let gone = EVERY_CASE.iter().filter(|(name, _)| !exists(name));
    assert_eq!(gone.count(), 0, "a test in the list has another name now");
    let known = |property: &Property| EVERY_CASE.iter().any(|(name, _)| *name == property.name);
    let of_anything = found.iter().filter(|property| property.is_of_anything());
    let unknown: Vec<String> = of_anything
        .filter(|property| !known(property))
        .map(|property| format!("{}: {}", property.file.display(), property.name))
        .collect();
    assert!(
        unknown.is_empty(),
        "these begin with anything: begin with what is valid, and count what is reached: {unknown:#?}"
    );
    for (name, _) in EVERY_CASE {
        let is_it = |property: &&Property| property.name == name && property.is_of_anything();
        assert!(
            found.iter().any(|property| is_it(&property)),
            "{name} is listed, and no such test"
        );
    }
}
