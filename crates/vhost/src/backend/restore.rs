//! Continues with a device of another process.

use super::Backend;
use crate::fault::Fault;
use crate::handover::{self, Kept};

impl<S> Backend<S> {
    /// Continues with a device of another process, from the settings that it [kept](crate::handover).
    /// Rings that ran continue at their used index. Sends no reply.
    ///
    /// # Errors
    /// A setting is invalid; the device must be removed.
    pub fn restore(&mut self, kept: impl IntoIterator<Item = Kept>) -> Result<(), Fault> {
        for vring in self.vrings_mut() {
            vring.resume_at_used_index();
        }
        for message in handover::messages(kept)? {
            self.execute(message.request, message.descriptors)?;
        }
        Ok(())
    }
}
