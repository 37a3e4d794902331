//! What an endpoint needs from its node.

use std::net::SocketAddr;
use std::time::Duration;

use crate::event::{Address, PartnerId};
use crate::hosts::Hosts;
use crate::output::{Output, Route};
use crate::programs::Programs;

/// The time, the tables of hosts and programs, and the output queues.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Duration,
    pub(crate) hosts: &'a Hosts,
    /// The partners' programs, if all frames travel in datagrams.
    pub(crate) programs: Option<&'a Programs>,
    pub(crate) out: &'a mut Output,
    /// How long a partner may be silent before the endpoint gives it up.
    pub(crate) peer_timeout: Duration,
    /// Where this node takes datagrams, if it does.
    pub(crate) udp: Option<SocketAddr>,
    /// Blocks of all pulls of the endpoint that may be in flight at the same time, if there is a limit.
    pub(crate) pull_blocks: Option<usize>,
}

impl Context<'_> {
    pub(crate) fn only_datagrams(&self) -> bool {
        self.programs.is_some()
    }

    /// Returns where frames from an endpoint to a partner go.
    pub(crate) fn route(&self, endpoint: u8, partner: PartnerId) -> Option<Route> {
        route(self.hosts, self.programs, endpoint, partner)
    }
}

/// Returns where frames from an endpoint to a partner go. `None` if all frames travel in datagrams, and the address for the partner's is unknown.
pub(crate) fn route(
    hosts: &Hosts,
    programs: Option<&Programs>,
    endpoint: u8,
    (host, partner): PartnerId,
) -> Option<Route> {
    let route = hosts.route(host)?;
    let Some(programs) = programs else {
        return Some(route);
    };
    let partner = Address {
        host: route.mac,
        endpoint: partner,
    };
    Some(Route {
        datagrams: Some(programs.find(endpoint, partner)?),
        ..route
    })
}
