//! The provider of libfabric, and programs that use it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::mx::{Installed, succeed};
use super::root;

/// Returns why this machine cannot build or run the provider.
pub(crate) fn missing() -> Option<String> {
    for program in ["fi_info", "fi_pingpong", "make"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("{program} is not installed (scripts/setup mpi)"));
        }
    }
    let header = "/usr/include/rdma/providers/fi_prov.h";
    (!Path::new(header).exists()).then(|| format!("{header} is not installed (scripts/setup mpi)"))
}

/// The provider, and the library that it loads.
pub(crate) struct Libfabric {
    folder: PathBuf,
    mx: Installed,
}

impl Libfabric {
    /// Builds them as a user does.
    pub(crate) fn new(folder: &Path) -> Self {
        let mut make = Command::new("make");
        make.arg("--directory").arg(root().join("mpi/libfabric"));
        make.arg(format!("BUILD={}", folder.display()));
        succeed(&mut make);
        Self {
            mx: Installed::new(folder.join("mx")),
            folder: folder.to_owned(),
        }
    }

    /// Builds the program with the scenarios.
    pub(crate) fn scenarios(&self) -> PathBuf {
        let sources = root().join("mpi/libfabric/tests");
        let program = self.folder.join("fabric");
        let mut compile = Command::new("cc");
        compile.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]);
        compile.arg(self.folder.join("mx/include"));
        for file in ["fabric.c", "messages.c", "memory.c", "liar.c"] {
            compile.arg(sources.join(file));
        }
        compile.arg("-L").arg(self.mx.libraries());
        compile.args(["-pthread", "-lfabric", "-lmyriexpress", "-o"]);
        succeed(compile.arg(&program));
        program
    }

    /// Returns the folder of the library that the provider loads.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.mx.libraries()
    }

    /// Returns a command that finds the provider and the message plane, and that ends if it hangs.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120"]).arg(program);
        command.env("FI_PROVIDER_PATH", &self.folder);
        command.env("FI_PROVIDER", "vicinity");
        command.env("LD_LIBRARY_PATH", self.libraries());
        command.env("VICINITY_RUNTIME_DIR", self.folder.join("run"));
        command
    }
}

/// Installs a package of Python's registry, and returns its folder.
pub(crate) fn wheel(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&place));
    let mut install = Command::new(place.join("bin/pip"));
    succeed(install.args(["install", "--quiet", name]));
    place
}
