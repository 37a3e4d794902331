//! The protocol between the supervisor and a process of the sockets plane. Guests are numbers, in the order of the
//! orders that named them.

use serde::{Deserialize, Serialize};
use vhost::handover::Key;
use vsock::event::Event as DeviceEvent;
use vsock::figures::Figures;
use vsock::policy::Rules;

/// Supervisor to process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The next guest.
    Guest {
        /// The VM.
        name: String,
        /// Its CID.
        cid: u32,
        /// Its rules.
        rules: Rules,
    },
    /// All guests were named. Carries the memory of the list of connections. Begin.
    Begin,
    /// A setting of a guest's device that the last process stored. Carries the setting's descriptor, if it has one.
    Setting {
        /// The guest.
        guest: usize,
        /// What it is about.
        key: Key,
        /// Its value.
        payload: Vec<u8>,
    },
    /// Carries the socket of a guest's front-end. The settings that came before are those of its device.
    Attach {
        /// The guest.
        guest: usize,
    },
    /// Carries the socket on which host programs connect to a guest.
    Listen {
        /// The guest.
        guest: usize,
    },
    /// Carries the requested connection to a host program; without one, no program listens there.
    Connected {
        /// The number of the request.
        request: u64,
    },
    /// Report the figures: an [`Event::Figures`] for each guest, then [`Event::End`].
    Report,
    /// End.
    Stop,
}

/// Process to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// What the device tells.
    Device(DeviceEvent),
    /// The figures of a guest.
    Figures {
        /// The guest.
        guest: usize,
        /// The figures.
        figures: Figures,
    },
    /// The report is complete.
    End,
}
