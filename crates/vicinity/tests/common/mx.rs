//! C programs that use MX, built as by a user who has installed libmyriexpress.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{archive, root};

/// A folder with the libraries and headers.
pub(crate) struct Installed(PathBuf);

impl Installed {
    /// Installs them as the package does.
    pub(crate) fn new(folder: PathBuf) -> Self {
        let mut install = Command::new(root().join("scripts/myriexpress"));
        succeed(install.arg(archive()).arg(&folder));
        Self(folder)
    }

    /// Compiles a program of `crates/myriexpress`.
    pub(crate) fn compile(&self, source: &str, program: &Path) {
        let mut compile = Command::new("cc");
        compile.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
        compile.arg("-I").arg(self.0.join("include"));
        compile.arg(root().join("crates/myriexpress").join(source));
        compile.arg("-L").arg(self.libraries());
        succeed(compile.args(["-lmyriexpress", "-o"]).arg(program));
    }

    /// Returns the folder of the library.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.0.join("lib64")
    }
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
