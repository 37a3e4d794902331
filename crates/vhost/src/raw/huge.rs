//! Large pages for large tables.

use rustix::mm::Advice;

/// Have the kernel use huge pages for a table that is looked into at random, if it likes: its
/// pages are too many for the processor to remember where they all are. Changes nothing but time.
pub fn prefer_huge_pages<T>(table: &mut [T]) {
    let page = rustix::param::page_size();
    let start = table.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(page);
    let length = size_of_val(table).saturating_sub(skipped) / page * page;
    if length == 0 {
        return;
    }
    let start = start.wrapping_add(skipped).cast();
    // SAFETY: the pages lie in the table, which is ours alone, and the advice keeps their
    // contents. A kernel without huge pages refuses, which is as good.
    let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_whatever_the_size() {
        for length in [0_usize, 1, 4096, 8191, 3 << 20] {
            let mut table: Vec<usize> = (0..length).collect();
            let before = table.clone();
            prefer_huge_pages(&mut table);
            assert!(table == before);
        }
    }
}
