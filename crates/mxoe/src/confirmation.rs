//! Whether a partner that connected knows that it is connected, in a node whose frames all travel in datagrams.
//!
//! A side that connects may give up before the answer arrives, and use another path to the peer, so the other side must not report a connection
//! before it knows that its answer has arrived. It probes the partner: the answer to a probe proves that the partner has the
//! connection, and so does any packet that the partner sends on the connection. A probe has no key of its sender, which tells it
//! from a connect: it never makes a connection. A partner that answers none for the time of [`Config::peer_timeout`](crate::Config::peer_timeout) is
//! given up like any other, without an event. That is long, because a program that computes meanwhile answers late.

use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::event::{Event, PartnerId};
use crate::seq::Seq;
use crate::wire::Connect;

impl Endpoint {
    /// Handles a partner's connect that was answered. `is_new` tells whether it has made the connection.
    pub(crate) fn peer_connected(
        &mut self,
        id: PartnerId,
        request: &Connect,
        is_new: bool,
        context: &mut Context<'_>,
    ) {
        let Some(partner) = self.partners.get_mut(&id) else {
            return;
        };
        if !context.only_datagrams() {
            if is_new {
                self.report_peer(id, request.own_key, context);
            }
            return;
        }
        if is_new {
            partner.unconfirmed = Some(request.own_key);
        }
        if partner.unconfirmed.is_some() {
            partner.probe_at_once(context.now);
        }
    }

    /// Handles the proof that a partner has the connection.
    pub(crate) fn confirm(&mut self, id: PartnerId, context: &mut Context<'_>) {
        let partner = self.partners.get_mut(&id);
        let Some(partner) = partner.filter(|partner| partner.unconfirmed.is_some()) else {
            return;
        };
        if let Some(peer_key) = partner.unconfirmed.take() {
            self.report_peer(id, peer_key, context);
        }
    }

    /// Handles the number of a packet of a partner, which may be one of an earlier connection: the session of this endpoint was the same.
    pub(crate) fn confirm_by(&mut self, id: PartnerId, seq: Seq, context: &mut Context<'_>) {
        let partner = self.partners.get(&id);
        if partner.is_some_and(|partner| seq.same_connection(partner.next_receive)) {
            self.confirm(id, context);
        }
    }

    fn report_peer(&self, id: PartnerId, peer_key: Option<u32>, context: &mut Context<'_>) {
        if let Some(partner) = self.partners.get(&id) {
            context.out.events.push_back(Event::PeerConnected {
                endpoint: self.number,
                from: partner.address,
                peer_key,
            });
        }
    }
}
