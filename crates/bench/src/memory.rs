//! Measures the memory of a process without the memory of the guests that it serves.

use std::fs;

use vm_harness::error::{Context, Result};

use super::parse::number_after;

/// Returns the proportional set size in KiB of all mappings except those of memfds, in which guests' memory is.
pub(super) fn own_kib(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/smaps");
    let text = fs::read_to_string(&path).context(|| format!("read {path}"))?;
    Ok(sum(&text))
}

fn sum(text: &str) -> u64 {
    let mut guest = false;
    let mut kib = 0;
    for line in text.lines() {
        if let Some(pss) = line.strip_prefix("Pss:") {
            if !guest {
                kib += number_after(pss, "").unwrap_or(0);
            }
        } else if line.starts_with(|c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()) {
            // The first line of a mapping: addresses, permissions and file.
            guest = line.contains("/memfd:");
        }
    }
    kib
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_memory_is_left_out() {
        let text = "\
55d0c0000000-55d0c0001000 r-xp 00000000 08:01 1 /usr/bin/vicinity
Size:                  4 kB
Pss:                   3 kB
7f0000000000-7f0000010000 rw-s 00000000 00:01 9 /memfd:guest (deleted)
Pss:                  64 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
Pss:                  12 kB
Pss_Dirty:             8 kB
";
        assert_eq!(sum(text), 15);
    }

    #[test]
    fn this_process_has_some() {
        assert!(own_kib(std::process::id()).unwrap() > 100);
    }
}
