//! The service manager: what it hands over at the start ([`handed`]), what it is told ([`notify`],
//! [`watchdog`]), and what it keeps ([`fd_store`]).

pub(super) mod fd_store;
pub(super) mod handed;
pub(super) mod notify;
pub(super) mod watchdog;
