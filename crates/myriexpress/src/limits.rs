//! Numbers of MX, and limits of this library.

/// `MX_API`: the version of the interface. Programs of another high byte are refused.
pub(crate) const API: u32 = 0x301;

/// `MX_ANY_NIC` and `MX_ANY_ENDPOINT`.
pub(crate) const ANY: u32 = u32::MAX;

/// `MX_MAX_HOSTNAME_LEN`: no name is longer, its NUL included.
pub(crate) const HOSTNAME: usize = 80;

/// `MX_MAX_STR_LEN`: bytes of a label or other text.
pub(crate) const TEXT: usize = 128;

/// Most bytes of a message that a handler of unexpected messages is given.
pub(crate) const HANDED: u64 = 4096;

/// Bytes of an endpoint's heap. MX programs have no call to use one.
pub(crate) const HEAP: u64 = 4096;

/// Endpoints that a process may have open.
pub(crate) const OPEN: usize = 256;

/// Bits of a request's place within `mx_request_t`, and of how often it was used.
pub(crate) const REQUEST_BITS: u32 = 24;
