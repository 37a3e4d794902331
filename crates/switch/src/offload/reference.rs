//! A reference segmenter for tests: for each piece of the payload, it builds the frame that a sender
//! without offloads would have sent.

use super::frames::Flow;

/// Returns all segments of a frame with this payload.
pub(crate) fn segments(
    flow: &Flow,
    payload: &[u8],
    gso_size: u16,
    full_checksum: bool,
) -> Vec<Vec<u8>> {
    let mut pieces: Vec<&[u8]> = payload.chunks(usize::from(gso_size)).collect();
    if pieces.is_empty() {
        pieces.push(&[]);
    }
    let last = pieces.len() - 1;
    let mut flow = flow.clone();
    let (first_flags, mut segments) = (flow.flags, vec![]);
    for (number, piece) in pieces.iter().enumerate() {
        flow.flags = first_flags;
        if number != 0 {
            flow.flags &= 0b0111_1111; // CWR
        }
        if number != last {
            flow.flags &= 0b1111_0110; // PSH, FIN
        }
        segments.push(flow.frame(piece, full_checksum));
        flow.sequence = flow.sequence.wrapping_add(u32::from(gso_size));
        flow.id = flow.id.wrapping_add(1);
    }
    segments
}
