//! What the device tells the supervisor.

use serde::{Deserialize, Serialize};
use vhost::handover::Key;

/// An event. Guests are numbers, in the order of [`Plane::new`](crate::plane::Plane::new).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// Keep this setting of a guest's device for the next process. Carries its descriptor, if it has one.
    Keep {
        /// The guest.
        guest: usize,
        /// What the setting is about.
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
    /// The front-end waits for a reply. If the process ends now, it is unknown whether it got the reply.
    Answering {
        /// The guest.
        guest: usize,
    },
    /// The front-end got its reply.
    Answered {
        /// The guest.
        guest: usize,
    },
    /// Connect to the program that listens for this port of the host, and report to
    /// [`Plane::connected`](crate::plane::Plane::connected).
    Connect {
        /// The guest.
        guest: usize,
        /// The port.
        port: u32,
        /// The number of the request.
        request: u64,
    },
    /// The front-end is gone, or broke a rule.
    Ended {
        /// The guest.
        guest: usize,
        /// Why.
        reason: String,
        /// The guest or its front-end broke a rule.
        is_fault: bool,
    },
}
