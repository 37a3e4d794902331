use proptest::prelude::*;

use super::*;

/// Nanoseconds of a message by each method: [kernel, stream].
type Times = [u64; 2];

/// A peer that sends windows of messages, all of which begin before the first one ends.
struct Peer {
    choice: CopyChoice,
    now: Instant,
    /// Messages by the present method, and by the other one.
    counts: [u32; 2],
}

const MESSAGE: u64 = 256 << 10;
const WINDOW: usize = 8;

impl Peer {
    fn new() -> Self {
        Self {
            choice: CopyChoice::new(Flow::Several, false),
            now: Instant::now(),
            counts: [0; 2],
        }
    }

    fn send(&mut self, windows: u32, mut times: impl FnMut() -> Times) {
        for _ in 0..windows {
            let methods: Vec<_> = (0..WINDOW).map(|_| self.choice.begin(self.now)).collect();
            for method in methods {
                let [kernel, stream] = times();
                let time = if method == Method::Kernel {
                    kernel
                } else {
                    stream
                };
                self.now += Duration::from_nanos(time);
                self.counts[usize::from(method != self.choice.method)] += 1;
                self.choice.end(MESSAGE, self.now);
            }
            // The program computes, which is no time of a copy.
            self.now += Duration::from_millis(1);
        }
    }
}

const NEAR: Times = [20_000, 15_000];
const FAR: Times = [20_000, 40_000];

/// Windows after which the choice has followed a change.
const FOLLOWED_AFTER: u32 = 2 * (LAST_INTERVAL + 5 * 2 * TRIALS_TO_CHANGE);

proptest! {
    #[test]
    fn the_choice_follows_each_change(
        phases in prop::collection::vec((any::<bool>(), 1..2000u32, 1..=8u64), 1..8),
    ) {
        let mut peer = Peer::new();
        for (near, windows, factor) in phases {
            let times = if near { NEAR } else { FAR }.map(|time| time * factor);
            peer.send(FOLLOWED_AFTER, || times);
            let best = if near { Method::Stream } else { Method::Kernel };
            prop_assert_eq!(peer.choice.method, best);
            peer.send(windows, || times);
            prop_assert_eq!(peer.choice.method, best);
        }
    }
}

/// The sender of several messages writes a chunk of each in turn, and the receiver of several reads its half of each before it looks
/// for a report: all of them end at about the same time, which is that of all.
#[test]
fn messages_that_end_together_count_together() {
    let mut peer = Peer::new();
    let mut send = |windows: u32, times: Times| {
        for number in 0..windows {
            // More than an epoch, and not always a multiple.
            let messages = 60 + number % 7;
            let begin = peer.now;
            let methods: Vec<_> = (0..messages).map(|_| peer.choice.begin(begin)).collect();
            let [kernel, stream] = times.map(Duration::from_nanos);
            let all = methods.iter().map(|method| match method {
                Method::Kernel => kernel,
                Method::Stream => stream,
            });
            peer.now += all.sum::<Duration>();
            for _ in methods {
                peer.now += Duration::from_nanos(300);
                peer.choice.end(MESSAGE, peer.now);
            }
        }
        peer.choice.method
    };
    for _ in 0..3 {
        assert_eq!(send(FOLLOWED_AFTER, NEAR), Method::Stream);
        assert_eq!(send(FOLLOWED_AFTER, FAR), Method::Kernel);
    }
}

#[test]
fn steady_trials_become_rare() {
    let mut peer = Peer::new();
    peer.send(4000, || FAR);
    peer.counts = [0; 2];
    peer.send(40_000, || FAR);
    let [present, other] = peer.counts;
    assert!(other > 0 && present > 100 * other, "{present} {other}");
}

#[test]
fn an_interrupted_epoch_changes_nothing() {
    let mut peer = Peer::new();
    let mut number = 0;
    let sometimes_late = || {
        number += 1;
        // One message of 97 waits for its processor.
        if number % 97 == 0 {
            [5_000_000; 2]
        } else {
            [20_000; 2]
        }
    };
    peer.send(20_000, sometimes_late);
    assert_eq!(peer.choice.method, Method::Kernel);
}

#[test]
fn a_difference_within_the_scatter_changes_nothing() {
    let mut peer = Peer::new();
    peer.send(4000, || [20_000, 19_000]);
    assert_eq!(peer.choice.method, Method::Kernel);
}

/// Sends messages of the longest kind that can have a credit, and returns how many had one. `times` are those of an offered message.
fn send_with_credits(peer: &mut Peer, messages: u32, times: Times) -> u32 {
    let (mut credits, mut used, mut unreported) = (0, 0, 0);
    for _ in 0..messages {
        if credits > 0 {
            (credits, used) = (credits - 1, used + 1);
            unreported += MEDIUM_WITH_CREDIT;
            peer.now += Duration::from_nanos(times[1] / 4);
            continue;
        }
        peer.choice
            .sent_with_credits(std::mem::take(&mut unreported));
        let method = peer.choice.begin(peer.now);
        let [kernel, stream] = times;
        peer.now += Duration::from_nanos(match method {
            Method::Kernel => kernel,
            Method::Stream => {
                credits = peer.choice.grant();
                stream
            }
        });
        peer.choice.end(MEDIUM_WITH_CREDIT, peer.now);
    }
    used
}

fn with_credits() -> Peer {
    Peer {
        choice: CopyChoice::new(Flow::Several, true),
        ..Peer::new()
    }
}

#[test]
fn most_messages_have_credits_while_streams_are_faster() {
    let mut peer = with_credits();
    send_with_credits(&mut peer, 40_000, NEAR);
    assert_eq!(peer.choice.method, Method::Stream);
    let used = send_with_credits(&mut peer, 100_000, NEAR);
    assert!(used > 85_000, "{used}");
}

#[test]
fn the_choice_follows_a_change_in_spite_of_credits() {
    // As many messages as without credits.
    let messages = u64::from(FOLLOWED_AFTER) * WINDOW as u64 * MESSAGE / MEDIUM_WITH_CREDIT;
    let messages = u32::try_from(messages).unwrap();
    for number in 0..8 {
        let mut peer = with_credits();
        send_with_credits(&mut peer, 500_000 + number * messages / 8, NEAR);
        send_with_credits(&mut peer, messages, FAR);
        assert_eq!(peer.choice.method, Method::Kernel, "{number}");
        assert_eq!(send_with_credits(&mut peer, 100, FAR), 0);
    }
}
