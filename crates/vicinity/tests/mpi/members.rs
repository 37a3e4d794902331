//! Ranks of different members, as in VMs.

use crate::common::Daemon;
use crate::common::open_mpi::{DIRECT, PARTS, collective};
use crate::{BY_PML, MEMBERS, ONLY_PLANE, join_all, passes, prepare, ranks_in};

/// Each rank is a member of its own, as in VMs: two in a trust group, one by the relay.
#[test]
fn ranks_of_different_members_meet_by_the_pml() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let mut run = mpi.run(ONLY_PLANE);
    run.args(BY_PML);
    let program = mpi.program();
    ranks_in(&mut run, folder.path(), &["a", "b", "c"], &program, &[]);
    passes(&mut run, PARTS);
    drop(members);
}

/// The same with ob1.
#[test]
fn ranks_of_different_members_meet_on_the_plane() {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let mut run = mpi.run(ONLY_PLANE);
    run.args(["--mca", "btl_base_verbose", "10"]);
    let program = mpi.program();
    ranks_in(&mut run, folder.path(), &["a", "b", "c"], &program, &[]);
    let text = passes(&mut run, PARTS);
    // `a` and `b` reach each other's heap. Nobody reaches a heap of `c`, which has none.
    assert_eq!(text.matches(DIRECT).count(), 2, "{text}");
    let ordinary = "that MPI allocates are ordinary memory";
    // 40 times in `repeated_collectives`.
    assert_eq!(text.matches(ordinary).count(), 47, "{text}");
    assert!(!text.contains(&collective(3)), "{text}");
    // The relay passed on what `c` sent.
    let output = daemon.command(&["message", "counters", "--json"]);
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = counters["members"].as_array().unwrap();
    let c = all.iter().find(|member| member["name"] == "c").unwrap();
    assert!(c["messages"].as_u64().unwrap() > 1000, "{counters}");
    drop(members);
}
