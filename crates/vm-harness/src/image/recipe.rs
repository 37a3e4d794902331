//! The contents of an image: packages, modules and a kernel.

/// Packages that every guest has.
const PACKAGES: [&str; 17] = [
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "ethtool",
    "grep",
    "hostname",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    // A newer kmod loads this library itself to read compressed modules.
    "liblzma5",
    "mount",
    "procps",
    "qemu-guest-agent",
    "sockperf",
    "util-linux",
];

const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];

/// The contents of an image. [`Recipe::default`] is the standard guest.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The package of the kernel.
    pub(super) kernel: String,
    pub(super) packages: Vec<String>,
    pub(super) modules: Vec<String>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            kernel: "linux-image-cloud-amd64".to_owned(),
            packages: PACKAGES.map(String::from).to_vec(),
            modules: MODULES.map(String::from).to_vec(),
        }
    }
}

impl Recipe {
    /// Replaces the kernel, by default the release's cloud kernel, by that of another Debian package.
    #[must_use]
    pub fn kernel(mut self, package: &str) -> Self {
        package.clone_into(&mut self.kernel);
        self
    }

    /// Adds a Debian package (with its dependencies).
    #[must_use]
    pub fn package(mut self, name: &str) -> Self {
        self.packages.push(name.to_owned());
        self
    }

    /// Adds a kernel module of the kernel's package, which the guest loads at boot after the modules it depends on.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }
}
