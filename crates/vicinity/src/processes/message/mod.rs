//! The processes of the message plane: its data plane, which joins the members ([`broker`]), the gateway of
//! this host's own programs ([`gateway`]), and the way to other hosts ([`uplink`]). The supervisor
//! ([`crate::serve`]) starts them with a control socket ([`protocol`]) as standard input. They serve until it
//! sends the order to stop, or ends.

pub(crate) mod broker;
pub(crate) mod gateway;
pub(crate) mod protocol;
pub(crate) mod uplink;
