//! Test support: a process that the observer takes for a QEMU VM if the first word of its command line
//! is QEMU's name. Its threads have QEMU's names and wake up 100 times per second. The process ends at
//! the end of its standard input.

use std::io::{Read, stdin};
use std::thread::{Builder, sleep};
use std::time::Duration;

const THREADS: [&str; 5] = ["call_rcu", "IO io0", "worker", "CPU 0/KVM", "CPU 1/KVM"];

fn main() -> std::io::Result<()> {
    for name in THREADS {
        Builder::new().name(name.to_owned()).spawn(|| {
            loop {
                sleep(Duration::from_millis(10));
            }
        })?;
    }
    stdin().read_to_end(&mut Vec::new()).map(drop)
}
