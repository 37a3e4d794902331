//! Return and status codes of MX, and their texts.

use std::ffi::CStr;

use message::{Code, MessageError};

/// The result of a call: `mx_return_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Return(u32);

/// The result of a request: `mx_status_code_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct StatusCode(u32);

/// The result of a call in Rust; the error is never [`Return::SUCCESS`].
pub(crate) type Result<T = ()> = std::result::Result<T, Return>;

macro_rules! codes {
    ($kind:ident: $($name:ident = $value:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "the table is complete")]
        impl $kind {
            $(pub(crate) const $name: Self = Self($value);)*

            /// Returns the text of the code as a C string.
            pub(crate) fn text(self) -> &'static CStr {
                match self {
                    $(Self::$name => $text,)*
                    _ => c"unknown code",
                }
            }
        }
    };
}

codes! { Return:
    SUCCESS = 0, c"success";
    BAD_BAD_BAD = 1, c"an internal error of the library";
    FAILURE = 2, c"this library does not implement the call, or it failed";
    ALREADY_INITIALIZED = 3, c"mx_init was called already";
    NOT_INITIALIZED = 4, c"call mx_init first";
    NO_DEV = 5, c"there is no board: its directory cannot be used";
    NO_DRIVER = 6, c"there is no driver";
    NO_PERM = 7, c"no permission to use the board's directory";
    BOARD_UNKNOWN = 8, c"there is no board of this number";
    BAD_ENDPOINT = 9, c"not an open endpoint, or not an address of one";
    BAD_SEG_LIST = 10, c"the list of segments or words is missing, or they exceed 4 GiB, or 24 bytes of words";
    BAD_SEG_MEM = 11, c"a segment with a length has a null pointer";
    BAD_SEG_CNT = 12, c"too many segments";
    BAD_REQUEST = 13, c"no such request, or a request of the wrong kind";
    BAD_MATCH_MASK = 14, c"the match value has bits outside of the mask";
    NO_RESOURCES = 15, c"this host has no memory or descriptors left";
    BAD_ADDR_LIST = 16, c"the list of addresses is missing";
    BAD_ADDR_COUNT = 17, c"too many addresses";
    BAD_ROOT = 18, c"no such root";
    NOT_COMPLETED = 19, c"the request has not completed";
    BUSY = 20, c"the endpoint is in use";
    BAD_INFO_KEY = 21, c"no such key of mx_get_info";
    BAD_INFO_VAL = 22, c"a pointer or value for mx_get_info is missing or wrong";
    BAD_NIC = 23, c"not a NIC id";
    BAD_PARAM_LIST = 24, c"the list of parameters is missing";
    BAD_PARAM_NAME = 25, c"no such parameter";
    BAD_PARAM_VAL = 26, c"the parameter cannot have this value";
    BAD_HOSTNAME_ARGS = 27, c"a pointer for the host name is missing";
    HOST_NOT_FOUND = 28, c"no host of this name is known";
    REQUEST_PENDING = 29, c"the request is pending";
    TIMEOUT = 30, c"the timeout passed, or mx_wakeup was called";
    NO_MATCH = 31, c"nothing matches";
    BAD_ENDPOINT_ID = 32, c"the endpoint id is too large";
    CONNECTION_FAILED = 33, c"the peer's endpoint is not open";
    BAD_CONNECTION_KEY = 34, c"the key is not the endpoint's";
    BAD_INFO_LENGTH = 35, c"the buffer for mx_get_info is too small";
    NIC_NOT_FOUND = 36, c"no NIC of this id is known";
    BAD_KERNEL_VERSION = 37, c"the kernel's interface is of another version";
    BAD_LIB_VERSION = 38, c"the program was compiled for another version of the library";
    NIC_DEAD = 39, c"the NIC is dead";
    CANCEL_NOT_SUPPORTED = 40, c"this request cannot be cancelled";
    CLOSE_IN_HANDLER = 41, c"an endpoint cannot be closed by its own handler";
    BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42, c"the mask must cover all bits of the context id";
    NOT_SUPPORTED_WITH_CONTEXT_ID = 43, c"not supported endpoint_call context ids";
}

codes! { StatusCode:
    SUCCESS = 0, c"success";
    PENDING = 1, c"pending";
    BUFFERED = 2, c"buffered";
    REJECTED = 3, c"rejected";
    TIMEOUT = 4, c"the timeout passed";
    TRUNCATED = 5, c"the message was longer than the receive buffer";
    CANCELLED = 6, c"cancelled";
    ENDPOINT_UNKNOWN = 7, c"the endpoint is unknown";
    ENDPOINT_CLOSED = 8, c"the endpoint is closed";
    ENDPOINT_UNREACHABLE = 9, c"the endpoint cannot be reached";
    BAD_SESSION = 10, c"the endpoint was opened again: connect again";
    BAD_KEY = 11, c"the key is not the endpoint's";
    BAD_ENDPOINT = 12, c"no endpoint has this id";
    BAD_RDMAWIN = 13, c"the sender does not offer the message any more";
    ABORTED = 14, c"aborted";
    EVENTQ_FULL = 15, c"the event lock_in_turn is full";
    NO_RESOURCES = 16, c"a host has no memory or descriptors left";
}

impl From<Code> for StatusCode {
    fn from(code: Code) -> Self {
        match code {
            Code::Success => Self::SUCCESS,
            Code::Truncated => Self::TRUNCATED,
            Code::Cancelled => Self::CANCELLED,
            Code::Closed => Self::ENDPOINT_CLOSED,
            Code::BadSession => Self::BAD_SESSION,
            Code::Unreachable => Self::ENDPOINT_UNREACHABLE,
            Code::BadKey => Self::BAD_KEY,
            Code::Unknown => Self::ENDPOINT_UNKNOWN,
            Code::NoResources => Self::NO_RESOURCES,
        }
    }
}

impl StatusCode {
    /// Returns what `mx_connect` returns for a connect with this result.
    pub(crate) fn of_connect(self) -> Result {
        Err(match self {
            Self::SUCCESS => return Ok(()),
            Self::BAD_KEY => Return::BAD_CONNECTION_KEY,
            // The peer did not answer, either within the timeout or after all attempts.
            Self::TIMEOUT | Self::ENDPOINT_UNREACHABLE => Return::TIMEOUT,
            Self::ENDPOINT_UNKNOWN => Return::NIC_NOT_FOUND,
            Self::NO_RESOURCES => Return::NO_RESOURCES,
            _ => Return::CONNECTION_FAILED,
        })
    }
}

impl From<MessageError> for Return {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::BadRequest => Self::BAD_REQUEST,
            MessageError::BadPeer => Self::BAD_ENDPOINT,
            MessageError::BadMask => Self::BAD_MATCH_MASK,
            MessageError::ContextMask => Self::BAD_MATCHING_FOR_CONTEXT_ID_MASK,
            MessageError::BadContext => Self::BAD_PARAM_VAL,
            MessageError::TooManySegments => Self::BAD_SEG_CNT,
            // As in the reference implementation; native MX returns CANCEL_NOT_SUPPORTED.
            MessageError::CannotCancel => Self::BAD_REQUEST,
            MessageError::Busy => Self::BUSY,
            MessageError::UnknownNic(_) => Self::NIC_NOT_FOUND,
            MessageError::Connection(code) => StatusCode::from(code)
                .of_connect()
                .err()
                .unwrap_or(Self::FAILURE),
            MessageError::Timeout => Self::TIMEOUT,
            MessageError::Kernel(_) | MessageError::Window(_) => Self::NO_RESOURCES,
            // No MX call leads to these errors: only gateways and measurements do.
            MessageError::Join(_) | MessageError::DataMismatch => Self::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx_2_a_connect_says_how_it_failed() {
        let failed = |code| Return::from(MessageError::Connection(code));
        for (code, expected) in [
            (Code::BadKey, Return::BAD_CONNECTION_KEY),
            (Code::Closed, Return::CONNECTION_FAILED),
            (Code::Unknown, Return::NIC_NOT_FOUND),
            (Code::Unreachable, Return::TIMEOUT),
            (Code::NoResources, Return::NO_RESOURCES),
        ] {
            assert_eq!(failed(code), expected, "{code:?}");
        }
        assert_eq!(Return::from(MessageError::Timeout), Return::TIMEOUT);
        assert_eq!(
            Return::from(MessageError::UnknownNic(1)),
            Return::NIC_NOT_FOUND
        );
    }

    #[test]
    fn every_code_has_its_own_text() {
        let mut texts: Vec<_> = (0..=43).map(|code| Return(code).text()).collect();
        texts.extend((0..=16).map(|code| StatusCode(code).text()));
        assert!(!texts.contains(&Return(44).text()));
        assert_eq!(StatusCode(17).text(), Return(u32::MAX).text());
    }
}
