//! Reserves hugepages, and frees them at the end of the run.

use std::fs;

use crate::error::{Context, Error, Result};

const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// A reservation of hugepages. Dropping it restores the number of pages from before.
#[derive(Debug)]
pub struct Hugepages {
    before: u64,
}

impl Hugepages {
    /// Adds `pages` hugepages of 2 MB to those that the machine has.
    ///
    /// # Errors
    /// This process may not, or the kernel finds fewer.
    pub fn reserve(pages: u64) -> Result<Self> {
        // The guard is made before the reservation, so that it also frees a partial one.
        let guard = Self { before: total()? };
        let wanted = guard.before + pages;
        fs::write(COUNT, wanted.to_string()).context(|| "reserve hugepages".to_owned())?;
        let got = total()?;
        if got < wanted {
            return Err(Error::Host(format!(
                "the kernel gave {got} of {wanted} hugepages of 2 MB: memory is short or \
                 fragmented; stop other programs and try again"
            )));
        }
        Ok(guard)
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(COUNT, self.before.to_string()) {
            tracing::warn!(pages = self.before, %error, "cannot give hugepages back");
        }
    }
}

/// Returns the number of hugepages of 2 MB that the machine has now.
///
/// # Errors
/// The kernel has none of this size.
pub fn total() -> Result<u64> {
    let text = fs::read_to_string(COUNT).context(|| format!("read {COUNT}"))?;
    let count = text.trim().parse();
    count.map_err(|_| Error::unreadable("the number of hugepages", &text))
}
