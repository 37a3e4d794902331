//! The filter of a socket that receives the frames for some endpoints of a host.
//!
//! Several processes can have a socket on one interface, and the kernel passes each frame to all of them. A classic BPF program
//! (bpf(4)) in each socket lets only those frames pass that are for the process: the others cost neither a copy nor a slot
//! of its ring.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD,
    BPF_MEM, BPF_MISC, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_X, BPF_XOR, sock_filter,
};

use crate::endpoints::Endpoints;
use crate::pulls::MAGIC;
use crate::wire::{HEADER, Place, place};

/// Bits of a word of [`Endpoints`], as a shift and as a mask.
const WORD_SHIFT: u32 = 5;
const WORD_MASK: u32 = 31;

/// The results of a program: how many bytes of the frame pass.
const DROP: u32 = 0;
const PASS: u32 = u32::MAX;

/// Returns a program that lets frames of discovery pass, and those for these endpoints.
pub(crate) fn program(endpoints: &Endpoints) -> Vec<sock_filter> {
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
    program.extend(look_up(endpoints));
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

/// Loads bytes of the packet at an offset from its type. The kernel's offsets count from the MAC header.
fn load_packet(size: u32, offset: u32) -> sock_filter {
    let header = u32::try_from(HEADER).unwrap_or_default();
    instruction(BPF_LD | size | BPF_ABS, header + offset)
}

fn skip(count: u32) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, count)
}

fn end(result: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, result)
}

#[cfg(test)]
mod tests;
