//! Root ports for machines whose PCI Express bus accepts devices only in root ports while the guest
//! runs (`q35`).

use crate::DirectError;

/// QEMU's id of the root port for the control window.
pub(crate) const WINDOW: &str = "vicinity-window-port";

/// The start of QEMU's ids of the root ports for views; a number follows.
pub(crate) const VIEW: &str = "vicinity-view-port-";

/// The chassis number of the first root port. It is higher than those that a configuration usually uses.
const CHASSIS: u16 = 200;

/// The slot of the root bus where the ports begin, eight in each slot. Without addresses, QEMU would place the ports
/// before devices of libvirt, which have addresses: libvirt assigns these from slot 1 upward, and uses slots from
/// 0x1a for what is part of the chipset.
const SLOT: u16 = 0x18;

/// Returns the arguments of QEMU's `-device` options: a root port for the window, and one for each of
/// `views` views of at most `size` bytes.
#[must_use]
pub fn root_ports(views: u16, size: u64) -> Vec<String> {
    let port = |name: String, chassis: u16, size: u64| {
        // A view must lie at a multiple of its size. An area of twice that size contains such an address,
        // wherever the area begins.
        let room = size.saturating_mul(2);
        let number = chassis - CHASSIS;
        let (slot, function) = (SLOT + number / 8, number % 8);
        let address = format!("addr={slot:#x}.{function},multifunction=on");
        format!("pcie-root-port,id={name},chassis={chassis},{address},pref64-reserve={room}")
    };
    let window = port(WINDOW.to_owned(), CHASSIS, crate::layout::LENGTH);
    let views = (1..=views).map(|number| port(format!("{VIEW}{number}"), CHASSIS + number, size));
    std::iter::once(window).chain(views).collect()
}

/// Returns the error for a VM that lacks root ports.
pub(crate) fn missing(what: &str) -> DirectError {
    let advice = "as `vicinity direct qemu-args --ports` prints them";
    DirectError::Memory(format!("the VM {what}, {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_has_a_port_with_room_for_it() {
        let ports = root_ports(2, 1 << 30);
        assert_eq!(
            ports,
            [
                "pcie-root-port,id=vicinity-window-port,chassis=200,addr=0x18.0,multifunction=on,pref64-reserve=16777216",
                "pcie-root-port,id=vicinity-view-port-1,chassis=201,addr=0x18.1,multifunction=on,pref64-reserve=2147483648",
                "pcie-root-port,id=vicinity-view-port-2,chassis=202,addr=0x18.2,multifunction=on,pref64-reserve=2147483648",
            ]
        );
    }
}
