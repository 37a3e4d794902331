//! The specifications of the VMs: QEMU's options for ports, regions, spaces and firmware.

use std::fs;

use vm_harness::accel::Accel;
use vm_harness::bridge::Bridge;
use vm_harness::channel;
use vm_harness::error::{Context, Error, Result};
use vm_harness::scope::RunFolder;
use vm_harness::vm::{Nic, SMP_MAXCPUS_2, Spec};

use super::{BRIDGE, NO_OVMF, SWITCH, Testbed};
use crate::guest::Guest;
use crate::host::Firmware;

impl Testbed {
    /// Returns the specification of a VM.
    ///
    /// # Errors
    /// The daemon does not print the options, or the bridge cannot be made.
    pub(crate) fn spec(&mut self, guest: Guest) -> Result<Spec> {
        let mut spec = self.spec_on_port(guest, guest.name())?;
        let daemon = self.daemon()?;
        let name = guest.name();
        let mut options: Vec<String> = Vec::new();
        if guest.has_region() {
            options.extend(daemon.options(&["message", "qemu-args", name])?);
            options.extend(SMP_MAXCPUS_2.map(str::to_owned));
        }
        let ports = [
            "direct",
            "qemu-args",
            name,
            "--ports",
            "2",
            "--memory",
            "1G",
        ];
        match guest {
            Guest::One => options.extend(daemon.options(&ports)?),
            Guest::Mover => options.extend(daemon.options(ports.get(..3).unwrap_or_default())?),
            Guest::Two => options.extend(daemon.options(&["space", "qemu-args", name])?),
            Guest::Three => options.extend(self.firmware()?),
        }
        spec.qemu_args.extend(options);
        if matches!(guest, Guest::One | Guest::Two) {
            spec.nics.push(self.bridge_nic(guest)?);
        }
        Ok(spec)
    }

    /// Returns the specification of a VM with the NIC of a port, and nothing else. The NIC has the VM's address on
    /// every port.
    ///
    /// # Errors
    /// The daemon does not print the options.
    pub(crate) fn spec_on_port(&self, guest: Guest, port: &str) -> Result<Spec> {
        let mut spec = Spec::new(port, &self.logs());
        spec.memory_mib = guest.memory_mib();
        let mac = channel::mac(SWITCH, guest.number());
        let address = channel::address(SWITCH, guest.number());
        spec.kernel_args.push(format!("lab.nic={mac},{address}/24"));
        let memory = format!("{}M", guest.memory_mib());
        let words = ["qemu-args", port, "--memory", &memory];
        let words = self.daemon()?.options(&words)?;
        spec.qemu_args
            .extend(words.into_iter().map(|word| with_mac(&word, &mac)));
        let mut machine: Vec<&str> = match guest {
            Guest::One | Guest::Three => vec!["-machine", "q35"],
            Guest::Two | Guest::Mover => vec!["-global", "i440FX-pcihost.pci-hole64-size=64G"],
        };
        if guest == Guest::One && self.accel == Some(Accel::Tcg) {
            // An emulated processor is AMD's and has 40 bits of addresses. SeaBIOS puts the memory of root ports at the
            // end of the address space, of which AMD reserves the last 12 GiB.
            machine.extend(["-global", "x86_64-cpu.phys-bits=39"]);
        }
        spec.qemu_args
            .extend(machine.into_iter().map(str::to_owned));
        Ok(spec)
    }

    fn bridge_nic(&mut self, guest: Guest) -> Result<Nic> {
        let bridge = match self.bridge.take() {
            Some(bridge) => bridge,
            None => Bridge::new(self.accel.unwrap_or(Accel::Tcg))?,
        };
        let nic = channel::nic(&bridge, BRIDGE, guest.name(), guest.number());
        self.bridge = Some(bridge);
        nic?.ok_or_else(|| Error::Host("a bridge has a NIC for each VM".to_owned()))
    }

    /// Returns QEMU's options for OVMF, with a copy of the variables.
    fn firmware(&self) -> Result<Vec<String>> {
        let firmware = Firmware::find().ok_or_else(|| Error::Host(NO_OVMF.to_owned()))?;
        let run = self
            .run
            .as_ref()
            .map(RunFolder::path)
            .unwrap_or(&self.options.output);
        let variables = run.join("ovmf-variables.fd");
        fs::copy(&firmware.variables, &variables)
            .context(|| format!("copy {}", firmware.variables.display()))?;
        let flash = |file: &std::path::Path, more| {
            let file = file.display();
            [
                "-drive".to_owned(),
                format!("if=pflash,format=raw,file={file}{more}"),
            ]
        };
        let parts = [flash(&firmware.code, ",readonly=on"), flash(&variables, "")];
        Ok(parts.concat())
    }
}

/// Returns one of QEMU's options with this MAC address, if it has one.
fn with_mac(option: &str, mac: &str) -> String {
    let parts = option
        .split(',')
        .map(|part| match part.starts_with("mac=") {
            true => format!("mac={mac}"),
            false => part.to_owned(),
        });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_vm_on_every_port() {
        let option = "virtio-net-pci,netdev=n,mac=52:54:00:aa:bb:cc,rx_queue_size=256";
        let wanted = "virtio-net-pci,netdev=n,mac=52:54:00:00:02:04,rx_queue_size=256";
        assert_eq!(with_mac(option, "52:54:00:00:02:04"), wanted);
        assert_eq!(with_mac("-device", "x"), "-device");
    }
}
