//! Programs in C for MX, built as by a user who has libmyriexpress installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{archive, root};

/// The libraries and headers, in a folder.
pub(crate) struct Installed(PathBuf);

impl Installed {
    /// Install them as the package does.
    pub(crate) fn new(folder: PathBuf) -> Self {
        let mut install = Command::new(root().join("scripts/myriexpress"));
        succeed(install.arg(archive()).arg(&folder));
        Self(folder)
    }

    /// Compile a program of `crates/myriexpress`.
    pub(crate) fn compile(&self, source: &str, program: &Path) {
        let mut compile = Command::new("cc");
        compile.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
        compile.arg("-I").arg(self.0.join("include"));
        compile.arg(root().join("crates/myriexpress").join(source));
        compile.arg("-L").arg(self.libraries());
        succeed(compile.args(["-lmyriexpress", "-o"]).arg(program));
    }

    /// Where the library is.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.0.join("lib64")
    }
}

/// Run a command that is to succeed; what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
