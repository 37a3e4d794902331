//! The load under which the switch is operated.

use std::time::Duration;

use crate::switch::frames::mac;
use crate::switch::generator::Flow;

/// Ports under load.
pub(super) const PORTS: u16 = 64;

/// Time until the load has reached its full rate.
pub(super) const RAMP_UP: Duration = Duration::from_millis(300);

/// Flows from each NIC to the other one of its pair.
pub(super) fn flows() -> Vec<Flow> {
    let flow = |from: usize| Flow {
        from,
        to: vec![mac(from ^ 1)],
    };
    (0..usize::from(PORTS)).map(flow).collect()
}
