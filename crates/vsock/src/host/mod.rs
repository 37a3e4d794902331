//! Connections between guests and programs of the host, by Unix sockets in the convention of Firecracker, Cloud
//! Hypervisor and Kata.
//!
//! A host program connects to the guest's socket, sends `CONNECT port\n`, and gets `OK host-port\n` when the guest
//! has accepted (`handshake`). A guest that connects to a port of the host reaches the program that listens on
//! the guest's socket path with `_port` appended; the supervisor connects, because this process cannot.
//!
//! Here this device is an end of the connection (`transfer`), with [credit](crate::credit) of its own. It never
//! makes a guest wait: what a guest sends fits into the receive space that it was told of, or resets the connection.

mod handshake;
mod packet;
mod transfer;
