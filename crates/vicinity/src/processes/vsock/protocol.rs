//! The protocol between the supervisor and a process of the sockets plane. Guests are numbers, in the order of the
//! orders that named them.

use serde::{Deserialize, Serialize};
use vsock::figures::Figures;
use vsock::policy::Rules;

/// Message number and index of a setting, see `vhost::handover`.
pub(crate) type Key = (u32, u64);

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
    /// A setting of a guest's device that the last process kept. Carries the setting's descriptor, if it has one.
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
    /// Keep this setting for the next process. Carries its descriptor, if it has one.
    Keep {
        /// The guest.
        guest: usize,
        /// What it is about.
        key: Key,
        /// Its value.
        payload: Vec<u8>,
    },
    /// Forget this setting.
    Forget {
        /// The guest.
        guest: usize,
        /// What it is about.
        key: Key,
    },
    /// Forget all settings of this message number.
    ForgetAll {
        /// The guest.
        guest: usize,
        /// The message number.
        request: u32,
    },
    /// The guest's front-end waits for a reply.
    Answering {
        /// The guest.
        guest: usize,
    },
    /// The guest's front-end got its reply.
    Answered {
        /// The guest.
        guest: usize,
    },
    /// Requests a connection to the host program that listens for a guest's port of the host: an
    /// [`Order::Connected`].
    Connect {
        /// The guest.
        guest: usize,
        /// The port.
        port: u32,
        /// The number of the request.
        request: u64,
    },
    /// The guest's front-end is gone, or was dropped.
    Ended {
        /// The guest.
        guest: usize,
        /// Why.
        reason: String,
        /// The guest or its front-end broke a rule.
        is_fault: bool,
    },
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
