//! Several programs of a host that serve one interface at the same time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use message::remote::{InProcess, Way, open_board};
use message::{Address, Board, Code, Endpoint, MessageError, Options, Pattern, Peer};

use crate::common::{HANG, until};
use crate::hosts::{Hosts, LENGTHS, pattern};

const NAMES: [&str; 2] = ["alpha", "beta"];

/// Match values: a program answers a request by the same bytes.
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

/// A program, which a test runs in a host. It serves the interface itself, or uses a board, or the interface that a daemon offers. It opens
/// an endpoint, answers requests, and obeys commands on its standard input: `ping NIC ENDPOINT`, `way NIC ENDPOINT`, `find NAME`, `close`, and
/// `open ENDPOINT`. Each has a line as its result.
#[test]
#[ignore = "a role of the other tests"]
fn program() {
    let variable = |name| std::env::var(format!("VICINITY_TEST_{name}")).unwrap();
    let place = |name| std::env::var_os(format!("VICINITY_TEST_{name}"));
    let board = match (place("BOARD"), place("RUNTIME")) {
        (Some(board), _) => Board::open(board.as_ref()).unwrap(),
        (_, Some(runtime)) => open_board(runtime.as_ref(), Way::Offered, "-").unwrap(),
        _ => InProcess::open(variable("FOLDER").as_ref(), "mx", &variable("NAME")).unwrap(),
    };
    let open = |number: &str| {
        let options = Options {
            endpoint: Some(number.parse().unwrap()),
            ..Options::default()
        };
        Endpoint::open(&board, &options)
    };
    let mut endpoint = Some(open(&variable("ENDPOINT")).unwrap());
    let (commands, received) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            commands.send(line.unwrap()).unwrap();
        }
        // The test has ended.
        std::process::exit(0);
    });
    eprintln!("result {}", board.nic());
    loop {
        if let Some(endpoint) = &mut endpoint {
            answer(endpoint);
        }
        let Ok(command) = received.recv_timeout(Duration::from_micros(200)) else {
            continue;
        };
        let words: Vec<_> = command.split(' ').collect();
        let result = match words[..] {
            ["ping", nic, number] => {
                let (nic, number) = (nic.parse().unwrap(), number.parse().unwrap());
                let to = Address {
                    nic,
                    endpoint: number,
                };
                ping(endpoint.as_mut().unwrap(), to)
            }
            ["way", nic, number] => {
                let to = Address {
                    nic: nic.parse().unwrap(),
                    endpoint: number.parse().unwrap(),
                };
                let endpoint = endpoint.as_mut().unwrap();
                let peer = endpoint.connect(to, 0, Some(HANG)).unwrap();
                let by_datagrams = endpoint.is_reached_by_datagrams(peer);
                assert!(endpoint.is_on_other_host(peer));
                ["frames", "datagrams"][usize::from(by_datagrams)].to_owned()
            }
            ["find", name] => {
                board.discover(name);
                board.hosts().any(|(_, known)| known == name).to_string()
            }
            ["close"] => {
                endpoint = None;
                "closed".to_owned()
            }
            ["open", number] => match open(number) {
                Ok(opened) => {
                    endpoint = Some(opened);
                    "open".to_owned()
                }
                Err(error) => format!("{error:?}"),
            },
            _ => panic!("{command}"),
        };
        eprintln!("result {result}");
    }
}

/// Answers a request if there is one.
fn answer(endpoint: &mut Endpoint) {
    let Some(found) = endpoint.iprobe(Pattern::exactly(REQUEST)) else {
        return;
    };
    let memory = vec![0; found.length as usize];
    let receive = endpoint.irecv(Pattern::exactly(REQUEST), memory).unwrap();
    let end = Instant::now() + HANG;
    let got = loop {
        match endpoint.test(receive).unwrap() {
            Some(got) => break got,
            None => assert!(Instant::now() < end, "a request stays"),
        }
    };
    // The peer may have been killed.
    if let (Code::Success, Some(peer)) = (got.status.code, got.status.peer) {
        let bytes = got.memory.bytes().to_vec();
        let sent = endpoint.isend(peer, ANSWER, bytes).unwrap();
        endpoint.forget(sent).unwrap();
    }
}

/// Exchanges a message of every length with another program; returns the code.
fn ping(endpoint: &mut Endpoint, to: Address) -> String {
    let connected = endpoint.iconnect(to, 0, 3).unwrap();
    let mut peer: Option<Peer> = None;
    let end = Instant::now() + HANG;
    while peer.is_none() {
        answer(endpoint);
        match endpoint.test(connected).unwrap() {
            Some(done) if done.status.code != Code::Success => {
                return format!("{:?}", done.status.code);
            }
            done => peer = done.and_then(|done| done.status.peer),
        }
        if Instant::now() > end {
            return "connect hangs".to_owned();
        }
    }
    let peer = peer.unwrap();
    for (seed, length) in (0..).zip(LENGTHS) {
        let bytes = pattern(length, seed);
        let receive = endpoint.irecv(Pattern::exactly(ANSWER), vec![0; length]);
        let receive = receive.unwrap();
        let sent = endpoint.isend(peer, REQUEST, bytes.clone());
        let sent = match sent {
            Ok(sent) => sent,
            Err(MessageError::Connection(code)) => return format!("{code:?}"),
            Err(error) => return format!("{error:?}"),
        };
        let mut is_sent = false;
        loop {
            answer(endpoint);
            if let Some(done) = (!is_sent).then(|| endpoint.test(sent).unwrap()).flatten() {
                is_sent = true;
                if done.status.code != Code::Success {
                    assert!(endpoint.cancel(receive).unwrap());
                    endpoint.forget(receive).unwrap();
                    return format!("{:?}", done.status.code);
                }
            }
            if let Some(got) = endpoint.test(receive).unwrap() {
                assert_eq!(got.memory.bytes(), bytes, "{length} bytes");
                break;
            }
            if endpoint.lost() == Some(peer) || Instant::now() > end {
                assert!(endpoint.cancel(receive).unwrap());
                endpoint.forget(receive).unwrap();
                return "no answer".to_owned();
            }
        }
        if !is_sent {
            endpoint.forget(sent).unwrap();
        }
    }
    "Success".to_owned()
}

/// A running [`program`].
pub(crate) struct Program {
    child: Child,
    commands: ChildStdin,
    results: Receiver<String>,
    nic: String,
    pub(crate) endpoint: u32,
}

impl Program {
    /// Starts a program that serves the interface.
    pub(crate) fn start(hosts: &Hosts, place: usize, endpoint: u32) -> Self {
        Self::start_on(hosts, place, endpoint, None)
    }

    /// Starts a program on a board, or without one a program that serves the interface.
    pub(crate) fn start_on(
        hosts: &Hosts,
        place: usize,
        endpoint: u32,
        board: Option<&Path>,
    ) -> Self {
        let mut command = hosts.within(place, "sh".as_ref());
        // `exec`, so that the child is the program itself.
        command.args(["-c", "exec \"$@\"", "sh"]);
        command.arg(std::env::current_exe().unwrap());
        command.env(
            "VICINITY_TEST_FOLDER",
            hosts.runtime(place).join("message-mx"),
        );
        command.env("VICINITY_TEST_NAME", NAMES[place]);
        if let Some(board) = board {
            command.env("VICINITY_TEST_BOARD", board);
        }
        Self::spawn(command, endpoint)
    }

    /// Starts a program by a command to which only the arguments of the test are missing.
    pub(crate) fn spawn(mut command: Command, endpoint: u32) -> Self {
        let role = "shared_interface::program";
        command.args([role, "--exact", "--ignored", "--nocapture"]);
        command.env("VICINITY_TEST_ENDPOINT", endpoint.to_string());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (sender, results) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let line = line.unwrap();
                match line.strip_prefix("result ") {
                    Some(result) => drop(sender.send(result.to_owned())),
                    None => eprintln!("program: {line}"),
                }
            }
        });
        let nic = results.recv_timeout(HANG).unwrap();
        Self {
            commands: child.stdin.take().unwrap(),
            child,
            results,
            nic,
            endpoint,
        }
    }

    fn begin(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    fn result(&self) -> String {
        self.results.recv_timeout(2 * HANG).unwrap()
    }

    pub(crate) fn obey(&mut self, command: &str) -> String {
        self.begin(command);
        self.result()
    }

    pub(crate) fn ping(&mut self, (nic, endpoint): &(String, u32)) -> String {
        self.obey(&format!("ping {nic} {endpoint}"))
    }

    /// Returns how the messages of a connected program come: by `datagrams`, or by `frames`.
    pub(crate) fn way(&mut self, (nic, endpoint): &(String, u32)) -> String {
        self.obey(&format!("way {nic} {endpoint}"))
    }

    pub(crate) fn address(&self) -> (String, u32) {
        (self.nic.clone(), self.endpoint)
    }

    /// As `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Each program finds that an endpoint is closed.
pub(crate) fn all_find_closed(programs: &mut [Program], address: &(String, u32)) {
    for program in programs {
        until("the end", || program.ping(address) == "Closed");
    }
}

/// Each program pings each other one, all at the same time.
pub(crate) fn all_pairs(programs: &mut [Program]) {
    let addresses: Vec<_> = programs.iter().map(Program::address).collect();
    for shift in 1..addresses.len() {
        for (place, program) in programs.iter_mut().enumerate() {
            let (nic, endpoint) = &addresses[(place + shift) % addresses.len()];
            program.begin(&format!("ping {nic} {endpoint}"));
        }
        for program in &mut *programs {
            assert_eq!(program.result(), "Success");
        }
    }
}

/// Each other program connects to this endpoint, which another program had before. It may notice only now that the earlier connection
/// has ended.
pub(crate) fn all_reach(programs: &mut [Program], address: &(String, u32)) {
    let others = programs.iter_mut();
    for program in others.filter(|program| program.address() != *address) {
        until("a new connection", || program.ping(address) == "Success");
    }
}

/// Two programs on each of two hosts.
fn four(hosts: &Hosts) -> Vec<Program> {
    let places = [(0, 1), (0, 2), (1, 1), (1, 5)];
    let start = |(place, endpoint)| Program::start(hosts, place, endpoint);
    places.map(start).into()
}

#[test]
fn programs_of_one_interface_reach_each_other_and_those_of_another_host() {
    let hosts = Hosts::new(false);
    let mut programs = four(&hosts);
    all_pairs(&mut programs);
    // One more on each host, whose first program discovered the other host long before.
    std::thread::sleep(Duration::from_secs(2));
    programs.push(Program::start(&hosts, 0, 3));
    programs.push(Program::start(&hosts, 1, 0));
    for program in &mut programs[4..] {
        let other = NAMES[usize::from(program.endpoint == 3)];
        assert_eq!(program.obey(&format!("find {other}")), "true");
    }
    all_pairs(&mut programs);
    // A number is free once the endpoint is closed, for other programs, too.
    let (nic, _) = programs[0].address();
    assert_eq!(programs[1].obey("open 1"), "Busy");
    assert_eq!(programs[0].obey("close"), "closed");
    until("the end", || {
        programs[2].ping(&(nic.clone(), 1)) == "Closed"
    });
    until("the number", || programs[4].obey("open 1") == "open");
    programs[4].endpoint = 1;
    until("the other number", || programs[0].obey("open 3") == "open");
    programs[0].endpoint = 3;
    for address in [(nic.clone(), 1), (nic, 3)] {
        all_reach(&mut programs, &address);
    }
    all_pairs(&mut programs);
}

#[test]
fn a_program_that_is_killed_does_not_disturb_the_others() {
    let hosts = Hosts::new(false);
    let mut programs = four(&hosts);
    all_pairs(&mut programs);
    let killed = programs.remove(1);
    let address = killed.address();
    // In the middle of an exchange of the others.
    let (nic, endpoint) = programs[1].address();
    programs[0].begin(&format!("ping {nic} {endpoint}"));
    killed.kill();
    assert_eq!(programs[0].result(), "Success");
    all_pairs(&mut programs);
    // The program that answers for the host refuses what is for the other one.
    all_find_closed(&mut programs, &address);
    let nobody = (address.0.clone(), 77);
    assert_eq!(programs[1].ping(&nobody), "Closed");
    programs.push(Program::start(&hosts, 0, address.1));
    all_reach(&mut programs, &address);
    all_pairs(&mut programs);
}

#[test]
fn another_program_answers_for_the_host_when_the_first_one_is_killed() {
    let hosts = Hosts::new(false);
    let mut programs = four(&hosts);
    all_pairs(&mut programs);
    let first = programs.remove(0);
    let address = first.address();
    first.kill();
    all_pairs(&mut programs);
    until("the end", || programs[1].ping(&address) == "Closed");
    // The other host starts again. It finds this one by name, so there are replies to its queries.
    let left = programs.remove(0);
    programs.drain(..).for_each(Program::kill);
    let mut restarted = Program::start(&hosts, 1, 9);
    assert_eq!(restarted.obey("find alpha"), "true");
    let mut programs = vec![left, restarted, Program::start(&hosts, 0, address.1)];
    all_pairs(&mut programs);
}

/// The same name of an interface is another interface in another network namespace.
#[test]
fn a_program_with_the_folder_of_another_host_is_refused() {
    let hosts = Hosts::new(false);
    let _first = Program::start(&hosts, 0, 1);
    let mut command = hosts.within(1, std::env::current_exe().unwrap().as_ref());
    let role = "shared_interface::program";
    command.args([role, "--exact", "--ignored", "--nocapture"]);
    command.env("VICINITY_TEST_FOLDER", hosts.runtime(0).join("message-mx"));
    command
        .env("VICINITY_TEST_NAME", "beta")
        .env("VICINITY_TEST_ENDPOINT", "2");
    let refused = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("serve an interface with the address"),
        "{said}"
    );
}
