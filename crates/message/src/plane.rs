//! The part of a message plane that a program carries out in its own calls.

use std::fmt::Debug;
use std::time::Duration;

use rustix::io::Errno;
use window::waiter::{Token, Waiter};

/// A plane whose gateway, broker and uplink are in the program's process, see
/// [`InProcess`](crate::remote::InProcess). The calls of the board's endpoints make its progress. A trait, because the plane's parts
/// use the modules of endpoints themselves.
pub(crate) trait Plane: Debug + Send + Sync {
    /// Moves frames and records, unless another thread does that now. Costs little if there are none.
    fn poll(&self);

    /// The same; also handles connects and the ends of links.
    fn serve(&self);

    /// Returns how long a thread may sleep that waits for the plane's descriptors.
    fn sleep_limit(&self) -> Duration;

    /// Adds the plane's descriptors to an endpoint's waiter.
    fn watch(&self, waiter: &Waiter, token: Token) -> Result<(), Errno>;
}
