//! The filter of a socket that receives the frames for some endpoints of an address.
//!
//! Several processes can have a socket on one interface, and the kernel passes each frame to all of them. A classic BPF program
//! (bpf(4)) in each socket lets only those frames pass that are for the process: the others cost neither a copy nor a slot
//! of its ring.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K,
    BPF_LD, BPF_MEM, BPF_MISC, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_X, BPF_XOR,
    sock_filter,
};

use crate::endpoints::Endpoints;
use crate::pulls::MAGIC;
use crate::wire::{Destination, HEADER, Mac, Place, destination, place};

/// Bits of a word of [`Endpoints`], as a shift and as a mask.
const WORD_SHIFT: u32 = 5;
const WORD_MASK: u32 = 31;

/// The results of a program: how many bytes of the frame pass.
const DROP: u32 = 0;
const PASS: u32 = u32::MAX;

/// The frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The address that several processes have.
    pub mac: Mac,
    /// The endpoints at this address whose frames pass, with those of discovery.
    pub endpoints: Endpoints,
    /// All frames for other addresses pass.
    pub passes_other_addresses: bool,
}

impl Filter {
    /// Returns whether a frame passes. A broadcast counts as for this address.
    #[must_use]
    pub fn passes(&self, frame: &[u8]) -> bool {
        match frame.first_chunk().copied().map(Mac) {
            None => false,
            Some(mac) if mac != self.mac && mac != Mac::BROADCAST => self.passes_other_addresses,
            Some(_) => match destination(frame) {
                None => false,
                Some(Destination::Host) => true,
                Some(Destination::Endpoint(to)) => self.endpoints.contains(to),
            },
        }
    }

    /// Returns the program that decides the same.
    pub(crate) fn program(&self) -> Vec<sock_filter> {
        let mut program = compare_address(self.mac, self.passes_other_addresses);
        program.extend(find_destination());
        program.extend(look_up(&self.endpoints));
        program
    }
}

/// Returns the program that lets no frame pass.
pub(crate) fn nothing() -> [sock_filter; 1] {
    [end(DROP)]
}

/// Compares the first bytes of a frame with an address and with that of broadcasts. Ends the program for other addresses.
fn compare_address(mac: Mac, passes_others: bool) -> Vec<sock_filter> {
    let [a, b, c, d, e, f] = mac.0;
    let first = u32::from_be_bytes([a, b, c, d]);
    let last = u16::from_be_bytes([e, f]).into();
    vec![
        // Drops what is shorter than an address.
        load(BPF_H, 4),
        load(BPF_W, 0),
        branch(BPF_JEQ, first, 0, 2),
        load(BPF_H, 4),
        branch(BPF_JEQ, last, 4, 3),
        branch(BPF_JEQ, u32::MAX, 0, 2),
        load(BPF_H, 4),
        branch(BPF_JEQ, u16::MAX.into(), 1, 0),
        end(if passes_others { PASS } else { DROP }),
    ]
}

/// Loads the number of the endpoint that a frame is for into the accumulator. Ends the program for frames of discovery, and for those
/// that are for no endpoint.
fn find_destination() -> Vec<sock_filter> {
    let kinds: Vec<_> = (0..=u8::MAX)
        .filter_map(|kind| Some((kind, place(kind)?)))
        .collect();
    let mut program = vec![load_packet(BPF_B, 0)];
    // The kinds jump to one of these sections, in the order of the sections.
    let sections = [
        (Place::Host, vec![end(PASS)]),
        (Place::Byte(1), vec![load_packet(BPF_B, 1), skip(6)]),
        (Place::Byte(9), vec![load_packet(BPF_B, 9), skip(4)]),
        (
            Place::Magic(12),
            vec![
                load_packet(BPF_W, 12),
                instruction(BPF_ALU | BPF_XOR | BPF_K, MAGIC),
                branch(BPF_JGT, u8::MAX.into(), 0, 1),
                end(DROP),
            ],
        ),
    ];
    for (left, (kind, place)) in (0..kinds.len()).rev().zip(&kinds) {
        // Behind the kinds that are left and the end of the unknown kinds.
        let before = sections.iter().take_while(|(section, _)| section != place);
        let distance = left + 1 + before.map(|(_, code)| code.len()).sum::<usize>();
        let distance = u8::try_from(distance).unwrap_or(u8::MAX);
        program.push(branch(BPF_JEQ, (*kind).into(), distance, 0));
    }
    program.push(end(DROP));
    program.extend(sections.into_iter().flat_map(|(_, code)| code));
    program
}

/// Looks the number in the accumulator up in the set.
fn look_up(endpoints: &Endpoints) -> Vec<sock_filter> {
    const NUMBER: u32 = 0;
    const WORD: u32 = 1;
    let mut code = vec![
        instruction(BPF_ST, NUMBER),
        instruction(BPF_ALU | BPF_RSH | BPF_K, WORD_SHIFT),
    ];
    let words = (0u32..).zip(endpoints.0);
    for ((index, word), left) in words.zip((0u32..8).rev()) {
        code.push(branch(BPF_JEQ, index, 0, 2));
        code.push(instruction(BPF_LD | BPF_IMM, word));
        code.push(skip(3 * left));
    }
    code.extend([
        instruction(BPF_ST, WORD),
        instruction(BPF_LD | BPF_MEM, NUMBER),
        instruction(BPF_ALU | BPF_AND | BPF_K, WORD_MASK),
        instruction(BPF_MISC | BPF_TAX, 0),
        instruction(BPF_LD | BPF_MEM, WORD),
        instruction(BPF_ALU | BPF_RSH | BPF_X, 0),
        instruction(BPF_ALU | BPF_AND | BPF_K, 1),
        branch(BPF_JEQ, 0, 0, 1),
        end(DROP),
        end(PASS),
    ]);
    code
}

fn instruction(code: u32, k: u32) -> sock_filter {
    branch_of(code, k, 0, 0)
}

/// Compares the accumulator with a constant, and skips so many instructions.
fn branch(condition: u32, k: u32, if_true: u8, if_false: u8) -> sock_filter {
    branch_of(BPF_JMP | condition | BPF_K, k, if_true, if_false)
}

#[allow(clippy::cast_possible_truncation, reason = "codes have 16 bits")]
fn branch_of(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

/// Loads bytes of the packet at an offset from its type.
fn load_packet(size: u32, offset: u32) -> sock_filter {
    load(size, u32::try_from(HEADER).unwrap_or_default() + offset)
}

/// Loads bytes of the frame at an offset from its destination address.
fn load(size: u32, offset: u32) -> sock_filter {
    instruction(BPF_LD | size | BPF_ABS, offset)
}

fn skip(count: u32) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, count)
}

fn end(result: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, result)
}

#[cfg(test)]
mod tests;
