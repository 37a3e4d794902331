use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Processes, by the locks that each would have.
fn process(folder: &Path) -> SharedInterface {
    let locks = ByteLocks::open(&folder.join("numbers")).unwrap();
    SharedInterface::new(Arc::new(locks), 1, Vec::new()).unwrap()
}

/// An acknowledgement for an endpoint.
fn frame(to: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    (frame[16], frame[17]) = (35, to);
    frame
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8),
    Close(usize, u8),
    Release(usize, u8),
    Receive(u8),
    Restart(usize),
    Look(usize),
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
    ]
}

proptest! {
    /// Whatever processes open, close and end: a frame for an endpoint is accepted by the process that has the endpoint and by no
    /// other; one that no process has by the process that answers, if there is one. A filter never drops what its process accepts.
    #[test]
    fn each_frame_has_one_receiver(steps in prop::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let mut processes: Vec<_> = (0..3).map(|_| process(folder.path())).collect();
        // Which process has each endpoint, and whether its program has closed it.
        let mut owners: [Option<(usize, bool)>; 4] = [None; 4];
        let mut filters: Vec<_> = (0..3).map(|_| Endpoints::default()).collect();
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
                    let spare = ByteLocks::open(&folder.path().join("spare")).unwrap();
                    processes[who] = SharedInterface::new(Arc::new(spare), 1, Vec::new()).unwrap();
                    processes[who] = process(folder.path());
                    filters[who] = Endpoints::default();
                    for owner in owners.iter_mut().filter(|owner| owner.is_some_and(|(owner, _)| owner == who)) {
                        *owner = None;
                    }
                }
                Step::Look(who) => {
                    processes[who].take_over();
                    processes[who].look_at_others();
                }
                Step::Receive(to) => {
                    processes.iter_mut().for_each(SharedInterface::look_at_others);
                    let answering = processes.iter().position(SharedInterface::answers);
                    prop_assert!(processes.iter().filter(|process| process.answers()).count() <= 1);
                    let expected = owners[usize::from(to)].map(|(owner, _)| owner).or(answering);
                    for (who, process) in processes.iter_mut().enumerate() {
                        if let Some(changed) = process.changed_filter() {
                            filters[who] = changed;
                        }
                        prop_assert_eq!(process.accepts(&frame(to)), expected == Some(who));
                        prop_assert!(expected != Some(who) || filters[who].contains(to));
                    }
                }
            }
        }
    }
}

#[test]
fn the_filter_of_the_answering_process_drops_what_it_has_seen_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (process(folder.path()), process(folder.path()));
    assert!(a.answers() && !b.answers() && !b.take_over());
    assert!(b.claim(2).unwrap() && a.claim(1).unwrap());
    assert!(a.changed_filter().unwrap().contains(2));
    assert!(!a.accepts(&frame(2)) && b.accepts(&frame(2)));
    assert!(!a.changed_filter().unwrap().contains(2));
    assert_eq!(b.changed_filter().unwrap().iter().collect::<Vec<_>>(), [2]);
    assert!(a.changed_filter().is_none());
    // The other process is killed.
    drop(b);
    a.look_at_others();
    assert!(a.changed_filter().unwrap().contains(2) && a.accepts(&frame(2)));
}
