//! The core of the memory plane: the files of a space ([`store`]), and the number of slots that each VM's space has.
//!
//! # Theory of operation
//!
//! A space is a bounded buffer of slots in host memory between a guest that computes and a host that transmits (MemNet).
//! A job allocates a slot when the guest writes its data and frees the slot when the host has transmitted the data. A full
//! space blocks the guest. With too few slots, jobs are late; with too many, other VMs lack memory. The right number
//! changes with the load.
//!
//! ```text
//!   guest writes                                              clients read, or the host pushes
//!        |                                                                ^
//!        v                                                                |
//!   +---------+   slots   +----------------------------------------------------+
//!   |  store  |<--------->| slot pool: in use / free with pages / free without |
//!   +---------+           +----------------------------------------------------+
//!                            | allocate, free, wait                ^ number of slots
//!                            v                                     |
//!                        profile --Window, every second--> controller (one for all spaces of a host)
//!                                                            | estimator -> queueing + residual -> demand
//!                                                            | allocation: floors, then marginal gains
//!                                                            | resize_policy: dead band, hold time
//! ```
//!
//! 1. The [`profile`] of a space records the allocation and the return of slots, and the time that writes wait. Every second
//!    it delivers a [`Window`](estimator::Window) of measurements.
//! 2. The [`estimator`] smooths the windows into rates and detects lasting changes.
//! 3. [`queueing`] predicts the time to a slot for any number of slots; [`residual`] learns the error of that prediction.
//!    [`demand`] computes the fewest slots that meet the VM's objective, or names the bottleneck if slots do not help.
//! 4. [`allocation`] divides the host's budget: each space gets its floor (all floors of a class are stretched by one factor
//!    if they do not fit), then each remaining slot goes to the space with the largest marginal gain.
//! 5. [`resize_policy`] limits the number of changes. The [`controller`] combines a slow loop that follows the model with a
//!    fast loop that reacts to waiting writes. Each decision states its reason.
//!
//! No code here reads a clock or accesses memory: the caller passes the time in and carries the decisions out. Therefore
//! [`simulate`] can run the same code on loads of hours within seconds.
//!
//! # Example
//!
//! Two spaces share a budget of 20 slots. Writes of the first one wait, so the fast loop moves unused slots to it.
//!
//! ```
//! use space::controller::Controller;
//! use space::demand::Objective;
//! use space::estimator::Window;
//!
//! let objective = Objective { seconds: 1.5, quantile: Some(0.95), max_blocked: 0.2, weight: 1.0, class: 0 };
//! let mut controller = Controller::new(20, 2);
//! for space in [1, 2] {
//!     controller.attach(space, objective).expect("the budget has room for both");
//! }
//! assert_eq!((controller.slots(1), controller.slots(2)), (Some(10), Some(10)));
//!
//! let full = Window { seconds: 1.0, arrived: 9, released: 9, blocked: 0.6, in_use: 10, high_water: 10, ..Window::default() };
//! let idle = Window { seconds: 1.0, arrived: 1, released: 1, in_use: 1, high_water: 1, ..Window::default() };
//! for decision in controller.tick(1.0, &[(1, full), (2, idle)], false) {
//!     println!("space {}: {} slots, {:?}", decision.space, decision.slots, decision.reason);
//! }
//! assert!(controller.slots(1) > Some(10));
//! ```
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
