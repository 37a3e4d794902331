//! SELinux's policy module compiles. No kernel loads it here.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_policy_module_compiles() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/selinux");
    let folder = tempfile::tempdir().unwrap();
    // The tool requires that the file has the module's name.
    let module = folder.path().join("vicinity.mod");
    let package = folder.path().join("vicinity.pp");
    let mut compile = Command::new("checkmodule");
    compile.args(["-M", "-m", "-o"]).arg(&module);
    compile.arg(source.join("vicinity.te"));
    let mut pack = Command::new("semodule_package");
    pack.arg("-o").arg(&package).arg("-m").arg(&module);
    pack.arg("-f").arg(source.join("vicinity.fc"));
    for mut tool in [compile, pack] {
        let output = tool.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert!(package.metadata().unwrap().len() > 0);
}
