//! Supervised processes: starting one ([`launch`]), its control socket ([`handle`]), requests for its state
//! ([`pending_request`]), and starting it again when it ends ([`lifecycle`], [`backoff`]).

mod backoff;
pub(in crate::serve) mod child_process;
pub(in crate::serve) mod deadline;
pub(in crate::serve) mod handle;
pub(in crate::serve) mod launch;
pub(in crate::serve) mod lifecycle;
pub(in crate::serve) mod pending_request;
