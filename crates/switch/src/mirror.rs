//! Port mirroring: copies the frames that a port sends and receives to mirror ports.
//!
//! A copy is the frame that the mirrored port's VM sees, with its tag if it has one. The mirror port's rules
//! on VLANs and roles do not apply to it. A mirror port never delays forwarding: a copy without room is
//! dropped, and counted at the mirror port.

use crate::context::WorkerContext;
use crate::control::PortId;
use crate::guard::Outgoing;
use crate::limits::MAX_MIRRORS;
use crate::switch::Switch;

impl Switch {
    /// Sets the mirror ports of a port; each may be attached or not.
    pub(crate) fn set_mirrors(&mut self, number: u16, to: &[PortId]) {
        let to: Vec<u16> = to.iter().map(|port| port.0).take(MAX_MIRRORS).collect();
        self.mirrors.remove(&number);
        if !to.is_empty() {
            self.mirrors.insert(number, to);
        }
        self.update_observed(number);
    }

    /// Copies a frame to a mirror port; returns false when the frame is dropped there.
    pub(crate) fn mirror(
        &self,
        context: &mut WorkerContext,
        (to, pair): (u16, usize),
        out: &Outgoing<'_, '_>,
    ) -> bool {
        let port = self.port(to);
        port.is_some_and(|port| {
            self.send_to_port(context, (to, pair), port, &out.head, &out.rest())
        })
    }
}
