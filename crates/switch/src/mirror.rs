//! Mirror ports: what some ports send and are sent is copied to another one.
//!
//! A copy is what the mirrored port's VM sees, with its tag if it has one; no rule of the mirror
//! port on VLANs or roles applies to it. Nobody waits for a mirror port: a copy that finds no room
//! there is lost, and counted there.

use crate::context::WorkerContext;
use crate::control::PortId;
use crate::guard::Outgoing;
use crate::limits::MAX_MIRRORS;
use crate::switch::Switch;

impl Switch {
    /// Copy a port's frames to these ports, whether they are there or come later, and to no others.
    pub(crate) fn set_mirrors(&mut self, number: u16, to: &[PortId]) {
        let to: Vec<u16> = to.iter().map(|port| port.0).take(MAX_MIRRORS).collect();
        self.mirrors.remove(&number);
        if !to.is_empty() {
            self.mirrors.insert(number, to);
        }
        self.update_observed(number);
    }

    /// Copy a frame to a mirror port; false when it is lost there.
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
