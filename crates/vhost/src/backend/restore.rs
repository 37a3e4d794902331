//! Continues with a device of another process.

use super::Backend;
use crate::fault::Fault;
use crate::handover::{self, StoredSetting};

impl<S> Backend<S> {
    /// Continues with a device of another process, from the settings that it [stored](crate::handover).
    /// Rings that ran continue at their used index. Sends no reply.
    ///
    /// # Errors
    /// A setting is invalid; the device must be removed.
    pub fn restore(
        &mut self,
        stored: impl IntoIterator<Item = StoredSetting>,
    ) -> Result<(), Fault> {
        for vring in self.vrings_mut() {
            vring.resume_at_used_index();
        }
        for message in handover::messages(stored)? {
            self.execute(message.request, message.descriptors)?;
        }
        Ok(())
    }
}
