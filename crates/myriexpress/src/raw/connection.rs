//! Calls that connect endpoints, and calls about addresses.

use super::pointer::Out;
use super::{address_call, endpoint_call, timeout};
use crate::abi::{Address, Endpoint, Pointer, Request};
use crate::codes::Return;
use crate::connect::{self, Target};
use crate::handle;

#[unsafe(no_mangle)]
extern "C" fn mx_connect(
    endpoint: Endpoint,
    nic: u64,
    id: u32,
    key: u32,
    milliseconds: u32,
    address: Out<Address>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let target = Target {
            nic,
            endpoint: id,
            key,
        };
        address.put(connect::connect(shared, target, timeout(milliseconds))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_iconnect(
    endpoint: Endpoint,
    nic: u64,
    id: u32,
    key: u32,
    match_info: u64,
    context: Pointer,
    request: Out<Request>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        let target = Target {
            nic,
            endpoint: id,
            key,
        };
        if request.is_null() {
            return Err(Return::BAD_REQUEST);
        }
        request.put(connect::begin(shared, target, match_info, context)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_disconnect(endpoint: Endpoint, address: Address) -> Return {
    endpoint_call(endpoint, |shared| connect::disconnect(shared, address))
}

#[unsafe(no_mangle)]
extern "C" fn mx_needs_uplink(endpoint: Endpoint, result: Out<u32>) -> Return {
    endpoint_call(endpoint, |shared| {
        result.put(connect::needs_uplink(shared)?.into());
        Ok(())
    })
}

/// Stores what an endpoint answers about one of its peers.
fn tell_about_peer(
    endpoint: Endpoint,
    address: Address,
    result: &Out<u32>,
    question: fn(&message::Endpoint, message::Peer) -> bool,
) -> Return {
    endpoint_call(endpoint, |shared| {
        result.put(connect::ask_about_peer(shared, address, question)?.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_is_on_other_host(
    endpoint: Endpoint,
    address: Address,
    result: Out<u32>,
) -> Return {
    tell_about_peer(
        endpoint,
        address,
        &result,
        message::Endpoint::is_on_other_host,
    )
}

#[unsafe(no_mangle)]
extern "C" fn mx_is_reached_by_datagrams(
    endpoint: Endpoint,
    address: Address,
    result: Out<u32>,
) -> Return {
    tell_about_peer(
        endpoint,
        address,
        &result,
        message::Endpoint::is_reached_by_datagrams,
    )
}

#[unsafe(no_mangle)]
extern "C" fn mx_use_credit(
    endpoint: Endpoint,
    address: Address,
    length: u64,
    result: Out<u32>,
) -> Return {
    endpoint_call(endpoint, |shared| {
        result.put(connect::use_credit(shared, address, length)?.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_get_endpoint_addr(endpoint: Endpoint, address: Out<Address>) -> Return {
    endpoint_call(endpoint, |shared| {
        let own = shared.lock_for_call()?.core()?.endpoint.own();
        address.put(handle::address(shared.number, own.bits()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_decompose_endpoint_addr(address: Address, nic: Out<u64>, id: Out<u32>) -> Return {
    address_call(address, || {
        let (its_nic, its_id, _) = connect::decompose(address)?;
        nic.put(its_nic);
        id.put(its_id);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_decompose_endpoint_addr2(
    address: Address,
    nic: Out<u64>,
    id: Out<u32>,
    session: Out<u32>,
) -> Return {
    address_call(address, || {
        let (its_nic, its_id, its_session) = connect::decompose(address)?;
        nic.put(its_nic);
        id.put(its_id);
        session.put(its_session);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn mx_set_endpoint_addr_context(address: Address, context: Pointer) -> Return {
    address_call(address, || connect::set_context(address, context))
}

#[unsafe(no_mangle)]
extern "C" fn mx_get_endpoint_addr_context(address: Address, context: Out<Pointer>) -> Return {
    address_call(address, || {
        context.put(connect::context(address)?);
        Ok(())
    })
}
