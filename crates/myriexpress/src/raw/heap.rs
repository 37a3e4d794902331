//! Calls for one-sided access.

use message::{Atomic, Width};

use super::endpoint_call;
use super::pointer::{Buffer, Out};
use crate::abi::{Address, Endpoint, HeapHandle, Pointer};
use crate::codes::{Result, Return};
use crate::heap::{self, Purpose, Remote};
use crate::shared::Shared;

/// The operations of `mx_heap_fetch`.
const ADD: u32 = 0;
const AND: u32 = 1;
const OR: u32 = 2;
const XOR: u32 = 3;
const SWAP: u32 = 4;

#[unsafe(no_mangle)]
extern "C" fn mx_heap_alloc(endpoint: Endpoint, length: u64, memory: Out<Pointer>) -> Return {
    endpoint_call(endpoint, |shared| {
        let address = heap::allocate(shared, length)?;
        memory.put(address.map_or(Pointer::NULL, Pointer::from_exposed));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_free(memory: Buffer, result: Out<u32>) -> Return {
    result.put(heap::free(memory.address()).into());
    Return::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_handle(
    memory: Buffer,
    length: u64,
    handle: Out<HeapHandle>,
    result: Out<u32>,
) -> Return {
    let found = heap::handle(memory.address(), length);
    if let Some(found) = found {
        handle.put(found);
    }
    result.put(found.is_some().into());
    Return::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_put(
    endpoint: Endpoint,
    to: Address,
    handle: Out<HeapHandle>,
    offset: u64,
    bytes: Buffer,
    length: u64,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let bytes = bytes.bytes(length).ok_or(Return::BAD_SEG_MEM)?;
        let remote = remote(shared, to, &handle, offset, length, Purpose::Work)?;
        let done = remote.is_some_and(|remote| remote.put(bytes));
        result.put(done.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_get(
    endpoint: Endpoint,
    from: Address,
    handle: Out<HeapHandle>,
    offset: u64,
    mut bytes: Buffer,
    length: u64,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let bytes = bytes.bytes_mut(length).ok_or(Return::BAD_SEG_MEM)?;
        let remote = remote(shared, from, &handle, offset, length, Purpose::Work)?;
        let done = remote.is_some_and(|remote| remote.get(bytes));
        result.put(done.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_look(
    endpoint: Endpoint,
    from: Address,
    handle: Out<HeapHandle>,
    offset: u64,
    least: u64,
    value: Out<u64>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let length = size_of::<u64>() as u64;
        let remote = remote(shared, from, &handle, offset, length, Purpose::Look)?;
        let found = match remote {
            Some(remote) => remote.look(shared, least)?,
            None => None,
        };
        if let Some(found) = found {
            value.put(found);
        }
        result.put(found.is_some().into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_fetch(
    endpoint: Endpoint,
    peer: Address,
    handle: Out<HeapHandle>,
    offset: u64,
    width: u32,
    operation: u32,
    operand: u64,
    before: Out<u64>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let operation = match operation {
            ADD => Atomic::Add(operand),
            AND => Atomic::And(operand),
            OR => Atomic::Or(operand),
            XOR => Atomic::Xor(operand),
            SWAP => Atomic::Swap(operand),
            _ => return Err(Return::BAD_PARAM_VAL),
        };
        let remote = remote(shared, peer, &handle, offset, width.into(), Purpose::Work)?;
        change(remote, width, operation, &before, &result)
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_heap_compare_and_swap(
    endpoint: Endpoint,
    peer: Address,
    handle: Out<HeapHandle>,
    offset: u64,
    width: u32,
    expected: u64,
    value: u64,
    before: Out<u64>,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let operation = Atomic::CompareAndSwap { expected, value };
        let remote = remote(shared, peer, &handle, offset, width.into(), Purpose::Work)?;
        change(remote, width, operation, &before, &result)
    })
}

fn remote(
    shared: &Shared,
    peer: Address,
    handle: &Out<HeapHandle>,
    offset: u64,
    length: u64,
    purpose: Purpose,
) -> Result<Option<Remote>> {
    let handle = handle.get().ok_or(Return::BAD_SEG_MEM)?;
    Remote::new(shared, peer, handle, offset, length, purpose)
}

fn change(
    remote: Option<Remote>,
    width: u32,
    operation: Atomic,
    before: &Out<u64>,
    result: &Out<u32>,
) -> Result {
    let width = match width {
        4 => Width::Word,
        8 => Width::LongWord,
        _ => return Err(Return::BAD_PARAM_VAL),
    };
    let value = remote.and_then(|remote| remote.atomic(width, operation));
    if let Some(value) = value {
        before.put(value);
    }
    result.put(value.is_some().into());
    Ok(())
}
