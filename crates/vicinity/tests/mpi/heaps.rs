//! Ranks that access the heaps of other members of their group.

use crate::common::Daemon;
use crate::common::open_mpi::{DIRECT, collective};
use crate::{BY_PML, MEMBERS, ONLY_PLANE, join_all, passes, prepare, ranks_in};

/// Puts, gets and atomic operations need no work of the target, within a member and between members of a group.
#[test]
fn a_rank_that_makes_no_calls_is_accessed_on_its_heap() {
    idle_ranks_are_accessed(&[]);
}

/// The PML connects the ranks in `MPI_Init`, and the BTL, which accesses the heaps, with the first window. The memory is older.
#[test]
fn a_rank_that_makes_no_calls_is_accessed_on_its_heap_by_the_pml() {
    idle_ranks_are_accessed(&BY_PML);
}

fn idle_ranks_are_accessed(options: &[&str]) {
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let program = mpi.program();
    // `one_sided` has memory of MPI_Win_allocate only. In `single_accumulates`, all access one rank.
    for (part, accesses) in [
        ("idle_target", 3),
        ("idle_counter", 3),
        ("allocated_memory", 3),
        ("single_accumulates", 2),
        ("one_sided", 3),
    ] {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(["--mca", "btl_base_verbose", "10"]).args(options);
        ranks_in(&mut run, folder.path(), &["a", "a", "b"], &program, &[part]);
        let text = passes(&mut run, 1);
        assert!(text.matches(DIRECT).count() >= accesses, "{text}");
    }
    drop(members);
}

/// Two ranks of a member and one of another one in its group read what each contributes from each other's heaps.
#[test]
fn short_collective_operations_of_a_group_use_its_heaps() {
    const PARTS: [&str; 4] = [
        "collectives",
        "short_collectives",
        "repeated_collectives",
        "threads_with_communicators",
    ];
    let Some((folder, mpi)) = prepare() else {
        return;
    };
    let daemon = Daemon::start(folder.path(), Some(MEMBERS));
    let members = join_all(folder.path(), &daemon);
    let program = mpi.program();
    let run = |names: &[&str], parts: &[&str], options: &[&str]| {
        let mut run = mpi.run(ONLY_PLANE);
        run.args(["--mca", "btl_base_verbose", "10"]).args(options);
        ranks_in(&mut run, folder.path(), names, &program, parts);
        passes(&mut run, parts.len())
    };
    for options in [&[][..], &BY_PML] {
        let text = run(&["a", "a", "b"], &PARTS, options);
        assert!(text.contains(&collective(3)), "{text}");
    }
    // Not between ranks of one member, which Open MPI's own components serve, nor without the component.
    let text = run(&["a", "a"], &PARTS[..1], &[]);
    assert!(!text.contains(&collective(2)), "{text}");
    let without = ["--mca", "coll", "^vicinity"];
    let text = run(&["a", "a", "b"], &PARTS[..1], &without);
    assert!(!text.contains(&collective(3)), "{text}");
    drop(members);
}
