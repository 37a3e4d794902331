//! Test support: a process that looks like a QEMU VM from outside, when it is started with
//! QEMU's name as its first word. Its threads have QEMU's names and wake up a hundred times a
//! second. It ends when its standard input does.

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
