//! Opens endpoints and connects them.

use std::time::Duration;

use message::limits::{ENDPOINTS, MEDIUM};
use message::{Contexts, Options, Peer};

use crate::abi::{self, Address, ErrorHandler, Pointer};
use crate::codes::{Result, Return, StatusCode};
use crate::condition::Condition;
use crate::core::{Core, Kind};
use crate::handle;
use crate::library;
use crate::limits::{ANY, HEAP, MAX_HANDLER_DATA};
use crate::raw::endpoint_lock::Threads;
use crate::shared::Shared;
use crate::{progress_thread, table};

/// The parameters of `mx_open_endpoint`, without the address.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) handler: Option<ErrorHandler>,
    pub(crate) contexts: Contexts,
    /// Bytes of the longest message that the handler of unexpected messages gets with its data, or
    /// `None` for that of MX.
    pub(crate) handler_data: Option<u64>,
    /// Whether messages that match no receive stay where they arrive.
    pub(crate) in_place: bool,
    pub(crate) threads: Threads,
}

/// `mx_open_endpoint`.
pub(crate) fn open(
    board: u32,
    endpoint: u32,
    key: u32,
    parameters: &Parameters,
) -> Result<abi::Endpoint> {
    let library = library::get()?;
    if board != 0 && board != ANY {
        return Err(Return::BOARD_UNKNOWN);
    }
    let endpoint = match endpoint {
        ANY => None,
        id if id < ENDPOINTS => Some(id),
        _ => return Err(Return::BAD_ENDPOINT_ID),
    };
    let options = Options {
        endpoint,
        key,
        contexts: parameters.contexts,
        heap: HEAP,
    };
    let data = parameters.handler_data.unwrap_or(MAX_HANDLER_DATA);
    let shared = table::add(parameters.threads, parameters.handler, |number| {
        let mut endpoint = message::Endpoint::open(&library.board, &options)?;
        if parameters.in_place {
            endpoint.leave_in_place();
        }
        Ok(Core::new(number, endpoint, data))
    })?;
    if let Err(code) = progress_thread::start(shared) {
        shared.close()?;
        return Err(code);
    }
    Ok(handle::endpoint(shared.number))
}

/// The remote endpoint of a connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) nic: u64,
    pub(crate) endpoint: u32,
    pub(crate) key: u32,
}

impl Target {
    fn address(self) -> message::Address {
        message::Address {
            nic: self.nic,
            endpoint: self.endpoint,
        }
    }
}

/// `mx_connect`. Without a limit, the call waits without a timeout.
pub(crate) fn connect(shared: &Shared, to: Target, limit: Option<Duration>) -> Result<Address> {
    if to.endpoint >= ENDPOINTS {
        return Err(Return::BAD_ENDPOINT_ID);
    }
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.counters.connects = core.counters.connects.wrapping_add(1);
    let request = core.endpoint.iconnect(to.address(), to.key, 0)?;
    core.register(request, Kind::Hidden, Pointer::NULL)?;
    let mut locked = locked.wait(Condition::Completed(request), limit)?;
    let core = locked.core()?;
    let Some(completion) = core.take_hidden(request) else {
        core.endpoint.forget(request)?;
        core.endpoint.cancel(request)?;
        return Err(Return::TIMEOUT);
    };
    StatusCode::from(completion.status.code).of_connect()?;
    let peer = completion.status.peer.ok_or(Return::CONNECTION_FAILED)?;
    Ok(core.address(peer))
}

/// `mx_iconnect`.
pub(crate) fn begin(
    shared: &Shared,
    to: Target,
    match_info: u64,
    context: Pointer,
) -> Result<abi::Request> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.counters.connects = core.counters.connects.wrapping_add(1);
    let request = core.endpoint.iconnect(to.address(), to.key, match_info)?;
    let better = (to.endpoint >= ENDPOINTS).then_some(StatusCode::BAD_ENDPOINT);
    let handle = core.register(request, Kind::Connect(better), context)?;
    core.set_timeout(request, core.connect_timeout);
    Ok(handle)
}

/// `mx_disconnect`.
pub(crate) fn disconnect(shared: &Shared, address: Address) -> Result {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(address)?;
    core.endpoint.disconnect(peer)?;
    locked.notify();
    Ok(())
}

/// `mx_needs_uplink`: returns whether only the process of a daemon's uplink reaches other hosts.
pub(crate) fn needs_uplink(shared: &Shared) -> Result<bool> {
    Ok(shared.lock_for_call()?.core()?.endpoint.needs_uplink())
}

/// `mx_is_on_other_host`, `mx_is_reached_by_datagrams`: asks the endpoint about the peer with this address.
pub(crate) fn ask_about_peer(
    shared: &Shared,
    address: Address,
    question: fn(&message::Endpoint, Peer) -> bool,
) -> Result<bool> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(address)?;
    Ok(question(&core.endpoint, peer))
}

/// `mx_use_credit`
pub(crate) fn use_credit(shared: &Shared, address: Address, length: u64) -> Result<bool> {
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(address)?;
    Ok(core.endpoint.use_credit(peer, length)?)
}

/// `mx_decompose_endpoint_addr2`: returns the NIC id, the endpoint and the session.
pub(crate) fn decompose(address: Address) -> Result<(u64, u32, u32)> {
    let shared = table::owner(address)?;
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    let peer = core.peer(address)?;
    let at = core.endpoint.address_of(peer).ok_or(Return::BAD_ENDPOINT)?;
    let session = core.endpoint.session_of(peer).unwrap_or_default();
    // The interface has only 32 bits for a session.
    let session = u32::try_from(session & u64::from(u32::MAX)).unwrap_or_default();
    Ok((at.nic, at.endpoint, session))
}

/// `mx_set_endpoint_addr_context`: stores the context pointer of a peer.
pub(crate) fn set_context(address: Address, context: Pointer) -> Result {
    let shared = table::owner(address)?;
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.peer(address)?;
    core.contexts.insert(address.peer, context.expose());
    Ok(())
}

/// `mx_get_endpoint_addr_context`: returns the context pointer of a peer, which is null at first.
pub(crate) fn context(address: Address) -> Result<Pointer> {
    let shared = table::owner(address)?;
    let mut locked = shared.lock_for_call()?;
    let core = locked.core()?;
    core.peer(address)?;
    let stored = core.contexts.get(&address.peer).copied();
    Ok(Pointer::from_exposed(stored.unwrap_or_default()))
}

/// Returns the length of `MX_PARAM_HANDLER_DATA`. The engine has longer messages only in pieces.
pub(crate) fn handler_data(length: u32) -> Result<Option<u64>> {
    let length = u64::from(length);
    match length <= MEDIUM {
        true => Ok(Some(length)),
        false => Err(Return::BAD_PARAM_VAL),
    }
}

/// Returns the context ids of `MX_PARAM_CONTEXT_ID`: their number of bits, and the lowest bit.
pub(crate) fn contexts(bits: u8, shift: u8) -> Result<Contexts> {
    Contexts::new(bits, shift).map_err(|_| Return::BAD_PARAM_VAL)
}
