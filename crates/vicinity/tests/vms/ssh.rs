//! A session of ssh between two guests, in which a user types ten lines a second.

use vm_harness::vm::Vm;

use crate::guest::{sh, wait_for_port};

/// A session in which the server echoes each typed line. The guest records the time of each echo.
pub(crate) struct Session<'vm> {
    from: &'vm Vm,
    /// The actions, and the time at which each began, by the clock of the guest that types.
    marks: Vec<(&'static str, f64)>,
}

impl<'vm> Session<'vm> {
    pub(crate) fn start(from: &'vm Vm, to: &Vm, to_ip: &str) -> Self {
        let key = "dropbearkey -t ed25519 -f";
        let public = sh(
            from,
            &format!("{key} /tmp/ssh.key >/dev/null; dropbearkey -y -f /tmp/ssh.key | grep ^ssh-"),
        );
        sh(
            to,
            &format!(
                "mkdir -p -m 700 /root/.ssh; echo '{public}' >/root/.ssh/authorized_keys; \
                 echo /bin/bash >/etc/shells; {key} /tmp/host.key; dropbear -s -r /tmp/host.key"
            ),
        );
        wait_for_port(to, 22);
        let typed = "until test -e /tmp/ssh.stop; do echo $((n += 1)); sleep 0.1; done";
        let client = format!("dbclient -y -y -T -i /tmp/ssh.key root@{to_ip} cat");
        let shown = "while read -r n; do echo $EPOCHREALTIME $n; done >/tmp/ssh.said";
        sh(
            from,
            &format!(
                "setsid bash -c '({typed}) | {client} | {shown}; touch /tmp/ssh.ended' \
                 </dev/null >/dev/null 2>&1 & until test -s /tmp/ssh.said; do sleep 0.1; done"
            ),
        );
        Self {
            from,
            marks: vec![("before", 0.0)],
        }
    }

    /// Records that the next action begins now.
    pub(crate) fn next(&mut self, what: &'static str) {
        let now = sh(self.from, "echo $EPOCHREALTIME");
        self.marks.push((what, now.parse().unwrap()));
    }

    /// Ends the session. Asserts that it was a single session and lost nothing, and prints the
    /// longest pauses.
    pub(crate) fn stop(self) {
        let end = "test ! -e /tmp/ssh.ended; touch /tmp/ssh.stop; \
                   until test -e /tmp/ssh.ended; do sleep 0.1; done";
        sh(self.from, &format!("set -e; {end}"));
        let said = sh(self.from, "cat /tmp/ssh.said");
        let lines = said.lines().map(|line| line.split_once(' ').unwrap());
        let (times, numbers): (Vec<f64>, Vec<u64>) = lines
            .map(|(time, number)| (time.parse::<f64>().unwrap(), number.parse::<u64>().unwrap()))
            .unzip();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
        for (what, pause) in self.pauses(&times) {
            println!("longest pause of ssh while {what}: {pause:.1} s");
        }
    }

    /// Returns the longest time between two lines during each action.
    fn pauses(&self, times: &[f64]) -> Vec<(&'static str, f64)> {
        let ends = self.marks.iter().skip(1).map(|(_, end)| *end);
        let ends = ends.chain([f64::INFINITY]);
        let of = |((what, begin), end): (&(&'static str, f64), f64)| {
            let pairs = times
                .windows(2)
                .filter(|pair| pair[1] > *begin && pair[1] <= end);
            (
                *what,
                pairs.map(|pair| pair[1] - pair[0]).fold(0.0, f64::max),
            )
        };
        self.marks.iter().zip(ends).map(of).collect()
    }
}
