//! The memory plane: what is in a space ([`store`]), and how many slots of host memory each VM's has.
//!
//! # Theory of operation
//!
//! A space is a bounded window of slots between a guest that computes and a host that transmits
//! (MemNet). A job takes a slot when the guest is done with it and gives it back when the network
//! is; a full space holds the guest back. Too few slots make jobs late, too many take memory from
//! other VMs, and the right number changes with the load.
//!
//! 1. The [`profile`] of a space notes what happens to its slots; each second it tells a
//!    [`Window`](estimator::Window): arrivals, busy times, waits.
//! 2. The [`estimator`] makes rates of it, and notices when they change for good.
//! 3. [`queueing`] says how long jobs take with any number of slots; [`residual`] learns how far
//!    that is off; [`demand`] is the fewest slots that meet the VM's objective, or the news that
//!    memory is not the problem.
//! 4. [`allocation`] shares the host's budget: floors, all stretched by one factor if they do not
//!    fit, then slot by slot to whom it helps most.
//! 5. [`resize_policy`] keeps changes few; the [`controller`] has both loops, a slow one that knows and a
//!    fast one that helps who waits now. Every decision has its reason.
//!
//! Nothing here reads a clock or touches memory: time comes as an argument, decisions go out. So
//! [`simulate`] tries the same code on loads of hours within seconds.
#![forbid(unsafe_code)]

pub mod allocation;
pub mod controller;
pub mod demand;
pub mod estimator;
pub mod profile;
pub mod queueing;
pub mod residual;
pub mod resize_policy;
pub mod simulate;
pub mod store;
