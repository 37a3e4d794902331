//! The ends of connections, and the connects that wait for them.
//!
//! A program may end before its peer has acknowledged all that it sent, so a connection outlives its
//! link. The next program may open the same endpoint meanwhile. It is another peer of the other host:
//! it must not continue the connection of the program before it. So its connect to the same peer
//! waits until that connection has ended. It also waits if the link of the program before it has not
//! even ended here: the two come from different sockets of the gateway.

use super::Uplink;
use super::link::EndpointPair;
use super::state::WaitingDial;
use crate::peer::Fault;
use crate::remote::control_message::ControlMessage;

impl Uplink {
    /// Ends the connections whose link has ended, once the peers have acknowledged all that was
    /// sent. Then begins the connects that waited for that.
    pub(super) fn close_finished(&mut self) -> Result<(), Fault> {
        if self.closing.is_empty() && self.waiting.is_empty() {
            return Ok(());
        }
        for pair in self.closing.clone() {
            self.finish_close(pair);
        }
        for WaitingDial { id, window, hello } in std::mem::take(&mut self.waiting) {
            if let Err(verdict) = self.dial(id, window, &hello) {
                self.control.send(ControlMessage::refusal(id, verdict))?;
            }
        }
        Ok(())
    }

    /// Ends the connection of a pair whose link has ended, and closes an endpoint without
    /// connections. Returns false if the peer has not acknowledged everything.
    pub(super) fn finish_close(&mut self, pair: EndpointPair) -> bool {
        let Some(at) = self.closing.iter().position(|closing| *closing == pair) else {
            return true;
        };
        let node = self.node(pair.nic);
        if node.is_some_and(|node| !node.is_idle(pair.endpoint, pair.peer)) {
            return false;
        }
        self.closing.swap_remove(at);
        let mut others = self.closing.iter().chain(self.pairs.keys());
        let same = |other: &EndpointPair| is_same_endpoint(other, &pair);
        let unused = !others.any(same);
        let (notifies, now) = (self.in_process, self.network.now());
        if let Some(node) = self.node(pair.nic) {
            node.disconnect(now, pair.endpoint, pair.peer);
            if notifies {
                node.notify_closed(now, pair.endpoint, pair.peer);
            }
            if unused {
                node.close(pair.endpoint);
            }
        }
        self.release_held(pair.endpoint);
        true
    }

    /// Ends the use of an endpoint by its program, which has closed a link or answers to another key, if that was the last link. The next program
    /// with the endpoint has another key.
    pub(super) fn retire_unused(&mut self, ended: EndpointPair) {
        let same = |pair: &EndpointPair| is_same_endpoint(pair, &ended);
        // A program that calls this uplink itself closes its endpoint itself.
        if self.in_process || self.pairs.keys().any(same) {
            return;
        }
        if let Some(node) = self.node(ended.nic) {
            node.retire(ended.endpoint);
        }
    }

    /// Whether the program before has the endpoint yet. Its links end soon.
    pub(super) fn has_former_program(&mut self, pair: EndpointPair, key: Option<u32>) -> bool {
        let known = self.node(pair.nic).and_then(|node| node.key(pair.endpoint));
        known.is_some() && key.is_some() && known != key
    }
}

fn is_same_endpoint(one: &EndpointPair, other: &EndpointPair) -> bool {
    (one.nic, one.endpoint) == (other.nic, other.endpoint)
}
