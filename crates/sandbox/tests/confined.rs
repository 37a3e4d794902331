//! A process in the sandbox, looked at from outside, and what becomes of it when it tries to do
//! more than it may. Each case runs in a process of its own: this program once more.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    unconditional_recursion,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Before the name of a case on the command line, to tell it from the words that test runners pass.
const CASE: &str = "case=";

fn main() {
    let argument = std::env::args().nth(1);
    if let Some(case) = argument.as_deref().and_then(|word| word.strip_prefix(CASE)) {
        return confined(case);
    }
    seen_from_outside(None);
    // As an ordinary user, which root can become.
    if rustix::process::geteuid().is_root() {
        seen_from_outside(Some(1000));
    }
    for case in [
        "open", "socket", "exec", "thread", "execmem", "signal", "ptrace",
    ] {
        let (status, said) = ended(start(case, None));
        assert_eq!(
            status.signal(),
            Some(libc::SIGSYS),
            "{case}: {status}, {said}"
        );
        println!("{case}: killed");
    }
    let (status, said) = ended(start("panic", None));
    assert_eq!(status.code(), Some(101), "{said}");
    assert!(said.contains("as told"), "the reason is told: {said}");
    let (status, said) = ended(start("abort", None));
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{said}");
    let (status, said) = ended(start("overflow", None));
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("overflowed its stack"), "{said}");
    println!("panic, abort, stack overflow: told");
    let (status, said) = ended(start("fault", None));
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{said}");
    println!("fault: ends it as a fault");
    let (status, said) = ended(start("worker", None));
    assert!(status.success(), "{status}, {said}");
    println!("worker: has memory");
    let (status, said) = ended(start("space", None));
    assert!(status.success(), "{status}, {said}");
    println!("space: has threads, and nothing else");
    calls_of_the_runtime();
}

/// Calls that are allowed for what a process seldom does, and the case that does it.
const RARE_CALLS: [(&str, &[&str]); 4] = [
    ("panic", &["futex"]),
    ("memory", &["brk", "mremap"]),
    ("abort", &["rt_sigprocmask", "gettid", "getpid", "tgkill"]),
    ("fault", &["rt_sigaction"]),
];

/// Each of them is made in its case, so the filter allows none without need. Needs strace.
fn calls_of_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls");
    for (case, calls) in RARE_CALLS {
        let mut strace = Command::new("strace");
        // A backtrace would be made of files, which have no names in there.
        strace.env_remove("RUST_BACKTRACE");
        strace.arg("--output").arg(&log);
        strace.arg(std::env::current_exe().unwrap());
        strace.arg(format!("{CASE}{case}")).stderr(Stdio::null());
        strace.status().unwrap();
        let all = fs::read_to_string(&log).unwrap();
        // Behind the last stage, which ends with the only call of this name that takes a filter.
        let (_, made) = all.rsplit_once("\nseccomp(").unwrap();
        for call in calls {
            assert!(
                made.contains(&format!("\n{call}(")),
                "{call} in {case}: {made}"
            );
        }
        println!("{case}: makes {calls:?}");
    }
}

/// What the child does.
fn confined(case: &str) {
    let mut missing = sandbox::enter_process();
    match case {
        "worker" => return worker(),
        "space" => return space(),
        _ => {}
    }
    missing.extend(sandbox::enter_thread(sandbox::ProcessKind::Network));
    assert_eq!(missing, [], "this test wants all that a kernel can offer");
    match case {
        "wait" => {
            std::io::stdout().write_all(b"in\n").unwrap();
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "open" => drop(fs::File::open("/etc/passwd")),
        "socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
        "exec" => drop(Command::new("/bin/true").exec()),
        "thread" => drop(std::thread::spawn(|| {}).join()),
        "execmem" => executable_memory(),
        "signal" => {
            let parent = rustix::process::getppid().unwrap_or(rustix::process::Pid::INIT);
            let _killed = rustix::process::test_kill_process(parent);
        }
        "ptrace" => trace_me(),
        "panic" => panic!("as told"),
        "abort" => std::process::abort(),
        "overflow" => println!("{}", overflow(&[0; 1024])),
        "fault" => fault(),
        "memory" => {
            let mut large = vec![1_u8; 1 << 16];
            let small: Vec<Vec<u8>> = (0..64).map(|size| vec![0; size << 10]).collect();
            large.resize(1 << 24, 0);
            large.resize(1 << 26, 0);
            assert!(small.len() < large.len());
        }
        other => panic!("no case {other}"),
    }
}

/// What libraries' threads may do, and that the rest fails.
fn space() {
    assert_eq!(sandbox::enter_thread(sandbox::ProcessKind::Space), []);
    let thread = std::thread::Builder::new().name("new".to_owned());
    let refused = thread.spawn(|| {
        [
            fs::File::open("/").map(drop),
            std::net::UdpSocket::bind("127.0.0.1:0").map(drop),
            Command::new("/bin/true").spawn().map(drop),
            Err(Command::new("/bin/true").exec()),
            fork(),
        ]
        .map(|tried| tried.unwrap_err().raw_os_error())
    });
    let refused = refused.unwrap().join().unwrap();
    assert_eq!(refused, [Some(libc::ENOSYS); 5]);
}

#[allow(unsafe_code)]
fn fork() -> std::io::Result<()> {
    // SAFETY: if there is a child, it ends at once.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => std::process::exit(0),
        _ => Ok(()),
    }
}

/// A second thread takes memory, piece by piece, and gives it back.
fn worker() {
    let worker = std::thread::spawn(|| {
        assert_eq!(sandbox::enter_thread(sandbox::ProcessKind::Network), []);
        let pieces: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 1 << 10]).collect();
        assert!(pieces.iter().all(|piece| piece[0] == 1));
    });
    worker.join().unwrap();
}

#[allow(unsafe_code)]
fn executable_memory() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping replaces nothing.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
}

fn overflow(bytes: &[u8; 1024]) -> u64 {
    let mut copy = *bytes;
    copy[0] = 1;
    overflow(std::hint::black_box(&copy)).wrapping_add(1)
}

#[allow(unsafe_code)]
fn fault() {
    let nowhere = std::hint::black_box(std::ptr::without_provenance::<u8>(8));
    // SAFETY: none; the process is to end by it.
    unsafe { nowhere.read_volatile() };
}

#[allow(unsafe_code)]
fn trace_me() {
    // SAFETY: takes no memory.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME) };
}

fn start(case: &str, user: Option<u32>) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(format!("{CASE}{case}"))
        .env_clear()
        // As data planes are started.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().unwrap()
}

fn ended(mut child: Child) -> (ExitStatus, String) {
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    (child.wait().unwrap(), said)
}

fn seen_from_outside(user: Option<u32>) {
    let mut child = start("wait", user);
    let mut ready = [0; 3];
    let got = child.stdout.as_mut().unwrap().read_exact(&mut ready);
    if got.is_err() {
        panic!("{:?}", ended(child));
    }
    let process = format!("/proc/{}", child.id());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2", "a filter");
    let id = user.unwrap_or(65534);
    for name in ["Uid:", "Gid:"] {
        assert_eq!(field(name), format!("{id}\t{id}\t{id}\t{id}"));
    }
    if user.is_none() {
        assert_eq!(field("Groups:"), "");
    }
    for space in ["user", "mnt", "net", "ipc"] {
        let of = |process: &str| fs::read_link(format!("{process}/ns/{space}")).unwrap();
        assert_ne!(of(&process), of("/proc/self"), "{space}");
    }
    assert_eq!(fs::read_dir(format!("{process}/root")).unwrap().count(), 0);
    let mounts = fs::read_to_string(format!("{process}/mounts")).unwrap();
    assert_eq!(mounts.lines().count(), 1, "{mounts}");
    assert!(mounts.contains("tmpfs ro,"), "{mounts}");
    drop(child.stdin.take());
    let (status, said) = ended(child);
    assert!(status.success(), "{status}, {said}");
    println!("seen from outside as user {id}: confined");
}
