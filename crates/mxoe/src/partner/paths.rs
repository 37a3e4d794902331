//! The paths to a partner beside ordinary frames.

use std::net::SocketAddr;
use std::time::Duration;

use super::path::Path;
use crate::limits::{LARGE_PIPELINE, PIPELINE};
use crate::wire::Connect;

/// What the partner takes beside ordinary frames, and whether that arrives.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Frames of [`LARGE_FRAGMENT`](crate::limits::LARGE_FRAGMENT).
    pub(crate) large: Path,
    /// Datagrams of UDP with such frames.
    pub(crate) udp: Path,
    /// Where the partner takes them, and where its own come from.
    udp_address: Option<SocketAddr>,
}

impl Paths {
    /// Handles what the partner says in its connect, if anything. It may be any number and address. `own` is where this side takes datagrams.
    pub(crate) fn learn(&mut self, now: Duration, connect: &Connect, own: Option<SocketAddr>) {
        let takes_large = connect
            .pipeline
            .is_some_and(|pipeline| pipeline >= LARGE_PIPELINE);
        if takes_large {
            self.large.learn(now);
        }
        let same_family = |udp: &SocketAddr| own.is_some_and(|own| own.is_ipv4() == udp.is_ipv4());
        let address = connect.udp.filter(same_family);
        if address != self.udp_address {
            self.udp = Path::default();
            self.udp_address = address;
        }
        if takes_large && address.is_some() {
            self.udp.learn(now);
        }
    }

    /// Returns whether a datagram from this address is the partner's.
    pub(crate) fn is_from_partner(&self, from: SocketAddr) -> bool {
        self.udp_address == Some(from)
    }

    /// Returns where to send a probe of the path of datagrams.
    pub(crate) fn udp_address(&self) -> Option<SocketAddr> {
        self.udp_address
    }

    /// Returns where to send data, if datagrams arrive.
    pub(crate) fn open_udp(&self) -> Option<SocketAddr> {
        self.udp_address.filter(|_| self.udp.is_open())
    }

    /// Binary logarithm of the bytes of a fragment or of a reply in a frame to this partner, at most.
    pub(crate) fn pipeline(&self) -> u8 {
        match self.large.is_open() {
            true => LARGE_PIPELINE,
            false => PIPELINE,
        }
    }

    /// Data does not seem to arrive.
    pub(crate) fn doubt(&mut self, now: Duration) {
        self.large.doubt(now);
        self.udp.doubt(now);
    }

    /// Handles the answer to a connect with this number. Returns false if that was no probe of a path.
    pub(crate) fn answered(&mut self, to: u8) -> bool {
        self.large.answered(to) || self.udp.answered(to)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let both = [self.large.deadline(), self.udp.deadline()];
        both.into_iter().flatten().min()
    }
}
