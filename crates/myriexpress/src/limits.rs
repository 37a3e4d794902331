//! Constants of MX, and limits of this library.

/// `MX_API`: the version of the interface. `mx_init` refuses programs with another high byte.
pub(crate) const API: u32 = 0x301;

/// `MX_ANY_NIC` and `MX_ANY_ENDPOINT`.
pub(crate) const ANY: u32 = u32::MAX;

/// `MX_MAX_HOSTNAME_LEN`: bytes of the longest host name, including its NUL.
pub(crate) const HOSTNAME: usize = 80;

/// `MX_MAX_STR_LEN`: bytes of a label or other text.
pub(crate) const TEXT: usize = 128;

/// Bytes of the longest message that a handler of unexpected messages gets with its data.
pub(crate) const MAX_HANDLER_DATA: u64 = 4096;

/// Bytes of an endpoint's heap, which is minimal because MX has no call that uses it.
pub(crate) const HEAP: u64 = 4096;

/// Blocks of one-sided memory that a process may have: each takes a descriptor.
pub(crate) const HEAP_BLOCKS: usize = 128;

/// Endpoints that a process may open at the same time.
pub(crate) const MAX_OPEN_ENDPOINTS: usize = 256;

/// Bits of a request's slot in `mx_request_t`, and of the slot's use count.
pub(crate) const REQUEST_BITS: u32 = 24;
