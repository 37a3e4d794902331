use std::path::Path;

use proptest::prelude::*;

use super::*;

const MAC: Mac = Mac([2; 6]);

/// Programs, by the locks that each would have.
fn program(folder: &Path) -> SharedInterface {
    let locks = ByteLocks::open(&folder.join("numbers")).unwrap();
    take_program_number(&locks).unwrap().unwrap();
    SharedInterface::of_program(Arc::new(locks), MAC, 1, Vec::new())
}

fn daemon(folder: &Path) -> SharedInterface {
    let locks = ByteLocks::open(&folder.join("numbers")).unwrap();
    assert!(take_daemon(&locks).unwrap());
    let lock = tempfile::tempfile().unwrap();
    SharedInterface::of_daemon(Arc::new(locks), lock, MAC)
}

/// An acknowledgement for an endpoint of a host.
fn frame_to(mac: Mac, to: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&mac.0);
    (frame[16], frame[17]) = (35, to);
    frame
}

fn frame(to: u8) -> [u8; 60] {
    frame_to(MAC, to)
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8),
    Close(usize, u8),
    Release(usize, u8),
    Receive(u8),
    Restart(usize),
    Look(usize),
    BeginDaemon,
    EndDaemon,
    Hold(u8),
    ReleaseHeld(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..3usize;
    let endpoint = 0..4u8;
    let both = || (who.clone(), endpoint.clone());
    prop_oneof![
        both().prop_map(|(who, endpoint)| Step::Open(who, endpoint)),
        both().prop_map(|(who, endpoint)| Step::Close(who, endpoint)),
        both().prop_map(|(who, endpoint)| Step::Release(who, endpoint)),
        endpoint.clone().prop_map(Step::Receive),
        (0..3usize).prop_map(Step::Restart),
        (0..3usize).prop_map(Step::Look),
        Just(Step::BeginDaemon),
        Just(Step::EndDaemon),
        endpoint.clone().prop_map(Step::Hold),
        endpoint.clone().prop_map(Step::ReleaseHeld),
    ]
}

proptest! {
    /// Whatever programs open, close and end: a frame for an endpoint is accepted by the program that has the endpoint and by no
    /// other process; one that no program has by the daemon if there is one, and otherwise by the program that answers. A filter never
    /// drops what its process accepts.
    #[test]
    fn each_frame_has_one_receiver(steps in prop::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let mut processes: Vec<_> = (0..3).map(|_| program(folder.path())).collect();
        // Which process has each endpoint, and whether its program has closed it.
        let mut owners: [Option<(usize, bool)>; 4] = [None; 4];
        let own_only = |own| Filter { mac: MAC, endpoints: own, passes_other_addresses: false };
        let mut filters = vec![own_only(Endpoints::default()); 3];
        for step in steps {
            match step {
                Step::Open(who, endpoint) => {
                    let free = owners[usize::from(endpoint)]
                        .is_none_or(|(owner, closed)| owner == who && closed);
                    prop_assert_eq!(processes[who].claim(endpoint).unwrap(), free);
                    if free {
                        owners[usize::from(endpoint)] = Some((who, false));
                    }
                }
                Step::Close(who, endpoint) => {
                    if owners[usize::from(endpoint)] == Some((who, false)) {
                        processes[who].close(endpoint);
                        owners[usize::from(endpoint)] = Some((who, true));
                    }
                }
                Step::Release(who, endpoint) => {
                    if owners[usize::from(endpoint)] == Some((who, true)) {
                        processes[who].release(endpoint);
                        owners[usize::from(endpoint)] = None;
                    }
                }
                Step::Restart(who) => {
                    // The old one ends first.
                    let spare = tempfile::tempdir().unwrap();
                    processes[who] = program(spare.path());
                    processes[who] = program(folder.path());
                    filters[who] = own_only(Endpoints::default());
                    for owner in owners.iter_mut().filter(|owner| owner.is_some_and(|(owner, _)| owner == who)) {
                        *owner = None;
                    }
                }
                Step::Look(who) => {
                    processes[who].update_answers();
                    processes[who].look_at_others();
                }
                // The process behind the programs. It has no filter at first.
                Step::BeginDaemon if processes.len() == 3 => {
                    processes.push(daemon(folder.path()));
                    let everything = Endpoints::default().complement();
                    filters.push(Filter { passes_other_addresses: true, ..own_only(everything) });
                }
                Step::BeginDaemon => {}
                Step::EndDaemon => {
                    processes.truncate(3);
                    filters.truncate(3);
                    for owner in owners.iter_mut().filter(|owner| **owner == Some((3, false))) {
                        *owner = None;
                    }
                }
                Step::Hold(endpoint) => {
                    if let Some(daemon) = processes.get_mut(3) {
                        let owner = &mut owners[usize::from(endpoint)];
                        let free = owner.is_none_or(|(owner, _)| owner == 3);
                        prop_assert_eq!(daemon.hold(endpoint), free);
                        if free {
                            *owner = Some((3, false));
                        }
                    }
                }
                Step::ReleaseHeld(endpoint) => {
                    if let Some(daemon) = processes.get_mut(3) {
                        let owner = &mut owners[usize::from(endpoint)];
                        prop_assert_eq!(daemon.held().contains(endpoint), *owner == Some((3, false)));
                        if daemon.held().contains(endpoint) {
                            daemon.release(endpoint);
                            *owner = None;
                        }
                    }
                }
                Step::Receive(to) => {
                    for process in &mut processes {
                        process.update_answers();
                        process.look_at_others();
                    }
                    let answering = processes.iter().position(SharedInterface::answers);
                    prop_assert!(processes.iter().filter(|process| process.answers()).count() <= 1);
                    let expected = owners[usize::from(to)].map(|(owner, _)| owner).or(answering);
                    for (who, process) in processes.iter_mut().enumerate() {
                        if let Some(changed) = process.changed_filter() {
                            filters[who] = changed;
                        }
                        prop_assert_eq!(process.accepts(&frame(to)), expected == Some(who));
                        prop_assert!(expected != Some(who) || filters[who].passes(&frame(to)));
                        let other = frame_to(Mac([4; 6]), to);
                        prop_assert_eq!(process.accepts(&other), who == 3);
                        prop_assert_eq!(filters[who].passes(&other), who == 3);
                    }
                }
            }
        }
    }
}

#[test]
fn the_filter_of_the_answering_process_drops_what_it_has_seen_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (program(folder.path()), program(folder.path()));
    assert!(a.answers() && !b.answers() && b.update_answers().is_none());
    assert!(b.claim(2).unwrap() && a.claim(1).unwrap());
    assert!(a.changed_filter().unwrap().passes(&frame(2)));
    assert!(!a.accepts(&frame(2)) && b.accepts(&frame(2)));
    assert!(!a.changed_filter().unwrap().passes(&frame(2)));
    let own = b.changed_filter().unwrap().endpoints;
    assert_eq!(own.iter().collect::<Vec<_>>(), [2]);
    assert!(a.changed_filter().is_none());
    // The other process is killed.
    drop(b);
    a.look_at_others();
    assert!(a.changed_filter().unwrap().passes(&frame(2)) && a.accepts(&frame(2)));
}

#[test]
fn a_daemon_answers_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = program(folder.path());
    assert!(a.claim(1).unwrap() && a.accepts(&frame(9)));
    let mut daemon = daemon(folder.path());
    assert_eq!(a.update_answers(), Some(Answers::End));
    assert!(!a.accepts(&frame(9)) && a.accepts(&frame(1)));
    let mut b = program(folder.path());
    assert!(!b.answers() && b.update_answers().is_none());
    // Programs of the daemon have no locks.
    assert!(daemon.accepts(&frame(9)) && daemon.hold(9) && !daemon.has_others());
    assert!(!daemon.accepts(&frame(1)) && !daemon.hold(1) && daemon.has_others());
    // But a program cannot take the number of an endpoint with connections by the daemon.
    assert!(!a.claim(9).unwrap() && b.claim(8).unwrap());
    daemon.release(9);
    assert!(a.claim(9).unwrap() && !daemon.hold(9));
    assert!(!daemon.changed_filter().unwrap().passes(&frame(1)));
    // The endpoints of VMs have other addresses.
    assert!(daemon.accepts(&frame_to(Mac([4; 6]), 1)));
    // A program is killed.
    drop(a);
    daemon.look_at_others();
    assert!(daemon.changed_filter().unwrap().passes(&frame(1)) && daemon.accepts(&frame(1)));
    drop(daemon);
    assert_eq!(b.update_answers(), Some(Answers::Begin));
}
