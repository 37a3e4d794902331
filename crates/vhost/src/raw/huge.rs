//! Transparent huge pages for large tables.

use rustix::mm::Advice;

/// Advises the kernel to use huge pages for a table with random access, whose 4 KiB pages are too many for
/// the TLB. Affects only performance.
pub fn prefer_huge_pages<T>(table: &mut [T]) {
    let page = rustix::param::page_size();
    let start = table.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(page);
    let length = size_of_val(table).saturating_sub(skipped) / page * page;
    if length == 0 {
        return;
    }
    let start = start.wrapping_add(skipped).cast();
    // SAFETY: the pages lie in the table, which is borrowed exclusively, and the advice does not change
    // their contents. A kernel without huge pages returns an error, which can be ignored.
    let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_does_not_change_contents_of_any_size() {
        for length in [0_usize, 1, 4096, 8191, 3 << 20] {
            let mut table: Vec<usize> = (0..length).collect();
            let before = table.clone();
            prefer_huge_pages(&mut table);
            assert!(table == before);
        }
    }
}
