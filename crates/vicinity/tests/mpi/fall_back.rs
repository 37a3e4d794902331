//! Jobs that the message plane does not serve: other components, and sentences.

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::open_mpi::OpenMpi;
use crate::{BY_PML, ONLY_PLANE, output, passes, prepare};

/// All components but those for ranks of one machine and for other networks. A list of names instead
/// would make a component that refuses to work an error.
const WITH_TCP: &str = "^vader,sm,openib,ofi,uct";

/// Runs a short job with TCP as the alternative, and returns what it says about components.
fn explained(mpi: &OpenMpi, change: impl FnOnce(&mut Command)) -> String {
    let mut run = mpi.run(WITH_TCP);
    run.args(["--mca", "btl_base_verbose", "10", "-n", "2"]);
    change(&mut run);
    passes(run.arg(mpi.program()).arg("persistent"), 1)
}

#[test]
fn without_the_plane_tcp_is_used() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let tcp = "Using tcp btl for send to";
    let text = explained(&mpi, |_| {});
    assert!(text.contains("is reached by the message plane"), "{text}");
    assert!(
        text.contains("Using vicinity btl") && !text.contains(tcp),
        "{text}"
    );
    let text = explained(&mpi, |run| {
        run.env("LD_LIBRARY_PATH", folder.path());
    });
    let sentence = "the message plane is not used, because it cannot be opened: libmyriexpress.so";
    assert!(text.contains(sentence) && text.contains(tcp), "{text}");
    let text = explained(&mpi, |run| {
        run.env("VICINITY_RUNTIME_DIR", "/proc/nothing");
    });
    assert!(
        text.contains("there is no board") && text.contains(tcp),
        "{text}"
    );
    // The second rank is on another board, as on another host: the address is not enough. Then Open MPI does
    // not call the component in each turn of its progress.
    let watching = watched_progress(folder.path());
    let progress = "progress of mca_btl_vicinity.so";
    let text = explained(&mpi, |run| {
        run.arg("-x").arg(format!("LD_PRELOAD={watching}"));
    });
    assert!(text.contains(progress), "{text}");
    let text = explained(&mpi, |run| {
        run.arg("-x").arg(format!("LD_PRELOAD={watching}"));
        run.args(["-n", "1"]).arg(mpi.program());
        run.args(["persistent", ":", "-n", "1", "-x"]);
        let other = folder.path().join("other");
        run.arg(format!("VICINITY_RUNTIME_DIR={}", other.display()));
    });
    let sentence = "cannot be reached by the message plane";
    assert!(text.contains(sentence) && text.contains(tcp), "{text}");
    assert!(!text.contains(progress), "{text}");
}

/// A library that says of each function that Open MPI calls in every turn of its progress where it is.
fn watched_progress(folder: &Path) -> String {
    let (source, library) = (folder.join("watched.c"), folder.join("watched.so"));
    let text = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        static int add(const char *how, int (*function)(void)) {
          Dl_info place;
          int (*next)(int (*)(void)) = dlsym(RTLD_NEXT, how);
          if (dladdr(function, &place))
            fprintf(stderr, "progress of %s\n", basename(place.dli_fname));
          return next(function);
        }
        int opal_progress_register(int (*function)(void)) { return add(__func__, function); }
        int opal_progress_register_lp(int (*function)(void)) { return add(__func__, function); }
    "#;
    std::fs::write(&source, text).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]);
    compile.arg(&library).arg(&source).arg("-ldl");
    common::mx::succeed(&mut compile);
    library.display().to_string()
}

/// `pml vicinity` has no other component for a rank that the plane does not reach. Without a word about it, ob1 stays the default.
#[test]
fn by_the_pml_the_plane_must_reach_each_rank() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let fails = |change: &dyn Fn(&mut Command)| {
        let mut run = mpi.run(WITH_TCP);
        change(run.args(BY_PML));
        let (output, text) = output(&run);
        assert!(!output.status.success(), "{text}");
        text
    };
    let text = fails(&|run| {
        run.args(["-n", "1"]).arg(mpi.program());
        run.args(["persistent", ":", "-n", "1", "-x"]);
        let other = folder.path().join("other");
        run.arg(format!("VICINITY_RUNTIME_DIR={}", other.display()));
        run.arg(mpi.program()).arg("persistent");
    });
    // Each rank says it of the other one, and ends the job, so that maybe only one of the two is heard.
    let sentences = [0, 1].map(|rank| format!("pml:vicinity: rank {rank} on "));
    let said = sentences.iter().any(|sentence| text.contains(sentence));
    let advice = "leave out `--mca pml vicinity`";
    assert!(said && text.contains(advice), "{text}");
    let text = fails(&|run| {
        run.env("LD_LIBRARY_PATH", folder.path());
        run.args(["-n", "2"]).arg(mpi.program()).arg("persistent");
    });
    let sentence = "pml:vicinity: the message plane cannot be opened: libmyriexpress.so";
    assert!(text.contains(sentence), "{text}");
    let fake = fake_version(folder.path(), "5.0.7");
    let text = fails(&|run| {
        run.arg("-x").arg(format!("LD_PRELOAD={fake}"));
        run.args(["-n", "2"]).arg(mpi.program()).arg("persistent");
    });
    let sentence = "pml:vicinity: this component was compiled for Open MPI 4.1.x";
    assert!(text.contains(sentence), "{text}");
    let mut run = mpi.run(ONLY_PLANE);
    run.args(["--mca", "pml_base_verbose", "10", "-n", "2"]);
    let text = passes(run.arg(mpi.program()).arg("persistent"), 1);
    let chosen = "select: component ob1 selected";
    assert!(text.contains(chosen), "{text}");
}

/// An Open MPI with this version, as far as the component can tell.
fn fake_version(folder: &Path, version: &str) -> String {
    let source = folder.join("fake.c");
    let text = format!("const char opal_version_string[] = \"{version}\";\n");
    std::fs::write(&source, text).unwrap();
    let fake = folder.join(format!("fake-{version}.so"));
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-o"])
        .arg(&fake)
        .arg(&source);
    common::mx::succeed(&mut compile);
    fake.display().to_string()
}

#[test]
fn another_open_mpi_is_refused_with_a_sentence() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    for (version, refused) in [("4.1.9", false), ("4.10.0", true), ("5.0.7", true)] {
        let fake = fake_version(folder.path(), version);
        let text = explained(&mpi, |run| {
            run.arg("-x").arg(format!("LD_PRELOAD={fake}"));
        });
        let sentence = format!("compiled for Open MPI 4.1.x, and this is Open MPI {version}.");
        assert_eq!(text.contains(&sentence), refused, "{text}");
        assert_eq!(text.contains("Using tcp btl"), refused, "{text}");
    }
}
