//! Types that cross the C boundary by value, with MX's layouts on x86-64.

use std::ffi::{c_char, c_void};

use crate::codes::{Return, StatusCode};

/// `mx_error_handler_t`.
pub(crate) type ErrorHandler = extern "C" fn(*mut c_char, Return) -> Return;

/// `mx_unexp_handler_t`.
pub(crate) type UnexpectedHandler = extern "C" fn(Pointer, Address, u64, u32, *mut c_void) -> u32;

/// The result of a handler of unexpected messages that has consumed the message.
pub(crate) const RECV_FINISHED: u32 = 1;

/// A pointer that the library stores for the program and never dereferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Pointer(*mut c_void);

impl Pointer {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// Returns the pointer as a number, which any thread may store.
    pub(crate) fn expose(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn from_exposed(number: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(number))
    }
}

/// `mx_endpoint_t`: a number, with which [`crate::table`] finds the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Endpoint(pub(crate) u64);

/// `mx_request_t`: also a number; 0 means no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Request(pub(crate) u64);

impl Request {
    pub(crate) const NONE: Self = Self(0);
}

/// `mx_endpoint_addr_t`: the endpoint that the address belongs to, and one of its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Address {
    pub(crate) endpoint: u64,
    pub(crate) peer: u64,
}

/// `mx_segment_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) start: *mut c_void,
    pub(crate) length: u32,
}

/// `mx_param_t`. The value is a union: a handler, a u32, or the first two bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameter {
    pub(crate) key: u32,
    pub(crate) value: u64,
}

/// `mx_status_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) code: StatusCode,
    pub(crate) source: Address,
    pub(crate) match_info: u64,
    pub(crate) msg_length: u32,
    pub(crate) xfer_length: u32,
    pub(crate) context: Pointer,
}

/// `mx_unexpected_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Unexpected {
    pub(crate) source: Address,
    pub(crate) match_info: u64,
    pub(crate) length: u32,
    pub(crate) reserved: u32,
    pub(crate) data: *const c_void,
}

/// `mx_heap_handle_t`: where a peer can find memory of this process's heap. As it comes from a peer,
/// any value is possible.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct HeapHandle {
    pub(crate) unit: u32,
    pub(crate) generation: u32,
    /// From the start of the unit.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// `mx_mapper_state_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MapperState {
    pub(crate) board: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) iport: u16,
    pub(crate) map_version: u32,
    pub(crate) num_hosts: u32,
    pub(crate) configured: u32,
    pub(crate) routes_valid: u32,
    pub(crate) level: u32,
    pub(crate) flags: u32,
}
