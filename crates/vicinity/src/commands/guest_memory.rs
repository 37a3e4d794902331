//! Which pages a VM's memory has, which process touches them first, and on which NUMA node they lie: options of
//! `qemu-args` and `libvirt-xml`.

use super::byte_size::bytes;

/// How a VM's memory is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct GuestMemory {
    /// Take the memory from the host's reserved huge pages, of this size or of the kernel's default
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = page, value_name = "SIZE")]
    hugetlb: Option<PageSize>,
    /// Have QEMU touch all memory at the start, so that it is charged to the VM and not to the switch
    #[arg(long)]
    prealloc: bool,
    /// Bind the memory to this NUMA node of the host
    #[arg(long, value_name = "NODE")]
    host_node: Option<u16>,
}

/// The size of huge pages in bytes; `None` stands for the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageSize(Option<u64>);

/// Parses the size of a huge page, which is a power of two; the empty text stands for the default.
fn page(text: &str) -> Result<PageSize, String> {
    if text.is_empty() {
        return Ok(PageSize(None));
    }
    match bytes(text) {
        Ok(size) if size.is_power_of_two() => Ok(PageSize(Some(size))),
        Ok(_) => Err("the size of a page is a power of two: 2M, 1G".to_owned()),
        Err(reason) => Err(reason),
    }
}

impl GuestMemory {
    /// Returns the properties for QEMU's `memory-backend-memfd` (`qemu(1)`), each with a comma before it.
    pub(crate) fn properties(&self) -> String {
        let mut text = String::new();
        match self.hugetlb {
            None => {}
            Some(PageSize(None)) => text += ",hugetlb=on",
            Some(PageSize(Some(size))) => {
                text += &format!(",hugetlb=on,hugetlbsize={}M", size >> 20);
            }
        }
        if self.prealloc {
            text += ",prealloc=on";
        }
        if let Some(node) = self.host_node {
            text += &format!(",host-nodes={node},policy=bind");
        }
        text
    }

    /// Checks that huge pages can make up `memory` bytes.
    pub(crate) fn check(&self, memory: u64) -> Result<(), String> {
        match self.hugetlb {
            Some(PageSize(Some(size))) if memory % size != 0 => Err(format!(
                "pages of {} MiB cannot make up {} MiB: choose a multiple with --memory",
                size >> 20,
                memory >> 20
            )),
            _ => Ok(()),
        }
    }

    /// Returns the children of libvirt's `<memoryBacking>` that these options add: name and element.
    pub(crate) fn backing(&self) -> Vec<(&'static str, String)> {
        let mut elements = Vec::new();
        match self.hugetlb {
            None => {}
            Some(PageSize(None)) => elements.push(("hugepages", "<hugepages/>".to_owned())),
            Some(PageSize(Some(size))) => {
                let size = size >> 10;
                let page = format!("<hugepages><page size='{size}' unit='KiB'/></hugepages>");
                elements.push(("hugepages", page));
            }
        }
        if self.prealloc {
            let immediate = "<allocation mode='immediate'/>".to_owned();
            elements.push(("allocation", immediate));
        }
        elements
    }

    /// Returns libvirt's `<numatune>`, if the memory is bound to a node.
    pub(crate) fn numatune(&self) -> Option<String> {
        let node = self.host_node?;
        Some(format!(
            "<numatune>\n  <memory mode='strict' nodeset='{node}'/>\n</numatune>\n"
        ))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        memory: GuestMemory,
    }

    /// Returns the options of this command line.
    pub(crate) fn options(words: &[&str]) -> GuestMemory {
        let words = ["vicinity"].iter().chain(words);
        Line::try_parse_from(words).unwrap().memory
    }

    #[test]
    fn properties_are_those_of_qemu() {
        for (words, expected) in [
            (&[][..], ""),
            (&["--hugetlb"], ",hugetlb=on"),
            (&["--hugetlb=2M"], ",hugetlb=on,hugetlbsize=2M"),
            (&["--hugetlb=1G"], ",hugetlb=on,hugetlbsize=1024M"),
            (&["--prealloc"], ",prealloc=on"),
            (
                &["--prealloc", "--host-node", "1"],
                ",prealloc=on,host-nodes=1,policy=bind",
            ),
        ] {
            assert_eq!(options(words).properties(), expected);
        }
        assert!(page("3M").unwrap_err().contains("power of two"));
        assert!(page("2").unwrap_err().contains("a unit"));
    }

    #[test]
    fn memory_is_a_multiple_of_its_pages() {
        let memory = options(&["--hugetlb=1G"]);
        assert_eq!(memory.check(2 << 30), Ok(()));
        let refused = memory.check(512 << 20).unwrap_err();
        assert!(refused.contains("1024 MiB") && refused.contains("512 MiB"));
        assert_eq!(options(&["--hugetlb"]).check(512 << 20), Ok(()));
    }

    #[test]
    fn elements_are_those_of_libvirt() {
        let memory = options(&["--hugetlb=2M", "--prealloc", "--host-node=1"]);
        let elements = memory.backing();
        assert_eq!(
            elements[0].1,
            "<hugepages><page size='2048' unit='KiB'/></hugepages>"
        );
        assert_eq!(elements[1].1, "<allocation mode='immediate'/>");
        assert!(memory.numatune().unwrap().contains("nodeset='1'"));
        assert!(options(&[]).backing().is_empty() && options(&[]).numatune().is_none());
    }
}
