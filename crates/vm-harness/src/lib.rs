//! What boots and drives VMs.

#![forbid(unsafe_code)]

pub mod accel;
pub mod affinity;
pub mod bridge;
pub mod channel;
pub mod channels;
pub mod cpu;
pub mod cpu_distance;
pub mod direct;
pub mod error;
pub mod host;
pub mod image;
pub mod instructions;
pub mod interrupt;
pub mod machine;
pub mod progress;
pub mod scope;
pub mod switch;
pub mod vm;
pub mod workload;
