//! A process that is kept running: how it is started, spoken with, and started again when it ends.

mod backoff;
pub(in crate::serve) mod child_process;
pub(in crate::serve) mod deadline;
pub(in crate::serve) mod handle;
pub(in crate::serve) mod launch;
pub(in crate::serve) mod lifecycle;
pub(in crate::serve) mod pending_request;
