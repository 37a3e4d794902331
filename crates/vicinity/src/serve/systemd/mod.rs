//! The service manager: the descriptors that it passes at the start ([`handed`]), the notifications
//! that the daemon sends to it ([`notify`], [`watchdog`]), and the memory that it keeps
//! ([`fd_store`]).

pub(super) mod fd_store;
pub(super) mod handed;
pub(super) mod notify;
pub(super) mod watchdog;
