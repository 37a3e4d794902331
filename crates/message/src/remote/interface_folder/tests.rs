use super::*;
use crate::remote::directory::NamedNic;

const NIC: u64 = 0x0200_0000_0001;

fn open(folder: &Path) -> InterfaceFolder {
    InterfaceFolder::open(folder, NIC).unwrap().0
}

fn sentence(folder: &Path, nic: u64) -> String {
    InterfaceFolder::open(folder, nic).unwrap_err().to_string()
}

#[test]
fn processes_of_one_interface_have_one_serial_number_until_all_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (open(folder.path()), open(folder.path()));
    assert_eq!(a.serial, b.serial);
    assert_ne!(a.own, b.own);
    let serial = a.serial;
    drop(a);
    let c = open(folder.path());
    assert_eq!(c.serial, serial, "a process is left");
    drop((b, c));
    assert_ne!(open(folder.path()).serial, serial, "a restart");
}

#[test]
fn what_killed_processes_have_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let left = [
        folder.path().join("processes/3/gateway.sock"),
        folder.path().join("endpoints/7.sock"),
    ];
    for file in &left {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    let create = || left.iter().for_each(|file| fs::write(file, "").unwrap());
    create();
    let first = open(folder.path());
    assert!(left.iter().all(|file| !file.exists()));
    // The sockets of others stay while any process is left.
    fs::create_dir(folder.path().join("processes/3")).unwrap();
    create();
    drop(open(folder.path()));
    assert!(left.iter().all(|file| file.exists()));
    // The next process with the number of one that was killed starts with an empty folder.
    let (own, _other) = (first.own.clone(), open(folder.path()));
    drop(first);
    fs::create_dir(&own).unwrap();
    fs::write(own.join("hosts"), "020000000009 gone\n").unwrap();
    let next = open(folder.path());
    assert!(next.own == own && next.known_hosts().unwrap().is_empty());
}

#[test]
fn hosts_that_another_process_has_found_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (open(folder.path()), open(folder.path()));
    let named_nic = |nic, name: &str| NamedNic {
        nic,
        name: name.to_owned(),
    };
    // The second is a group's address, and the third none of Ethernet.
    let found = [0x0200_0000_0007, 0x0300_0000_0007, 1 << 50];
    let found = found.map(|nic| named_nic(nic, "beta"));
    directory::write(&a.own, found.into_iter(), |_| Ok(())).unwrap();
    fs::write(b.own.join("hosts"), b"\xff\xfe no host\n7 seven\n").unwrap();
    let hosts = b.known_hosts().unwrap();
    assert_eq!(hosts, [Mac([2, 0, 0, 0, 0, 7])]);
}

#[test]
fn a_folder_of_another_interface_and_a_malformed_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let said = sentence(folder.path(), NIC + 1);
    assert!(said.contains("with the address 020000000001"), "{said}");
    for text in ["", "1", "x y .", "00000001 x .", "1 2"] {
        fs::write(folder.path().join("session"), text).unwrap();
        let said = sentence(folder.path(), NIC);
        assert!(said.contains("session is malformed"), "{said}");
    }
    drop(first);
    open(folder.path());
}

#[test]
fn a_program_of_a_daemon_begins_only_beside_the_daemon_or_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("message-mx");
    let mac = Mac::from_nic(NIC).unwrap();
    let program = || InterfaceFolder::open_beside_daemon(&own, NIC).map(|(program, _)| program);
    let no_daemon = |said: String| assert!(said.contains("no daemon has the files"), "{said}");
    no_daemon(program().unwrap_err().to_string());
    assert!(!own.join(SESSION).exists(), "it begins nothing");
    let alone = open(&own);
    no_daemon(program().unwrap_err().to_string());
    drop(alone);
    let daemon = DaemonInterface::open(&own, mac, "../message", [].into_iter()).unwrap();
    let first = program().unwrap();
    assert_eq!(first.board, own.join("../message"));
    drop(daemon);
    let second = program().unwrap();
    drop((first, second));
    no_daemon(program().unwrap_err().to_string());
    DaemonInterface::open(&own, mac, "../message", [].into_iter()).unwrap();
}

/// Users of the group may create what they like among the programs' folders.
#[test]
fn nothing_among_the_programs_folders_keeps_a_daemon_or_a_program_from_the_interface() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("message-mx");
    let mac = Mac::from_nic(NIC).unwrap();
    fs::create_dir_all(own.join("processes/9")).unwrap();
    fs::write(own.join("processes/file"), "").unwrap();
    std::os::unix::fs::symlink("/nonexistent", own.join("processes/link")).unwrap();
    let daemon = DaemonInterface::open(&own, mac, "../message", [].into_iter()).unwrap();
    assert_eq!(process_folders(&own).unwrap(), Vec::<PathBuf>::new());
    fs::create_dir(own.join("processes/9")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let pipe = own.join("processes/9/hosts");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let program = open(&own);
    assert_eq!(program.known_hosts().unwrap(), []);
    drop((program, daemon));
}

#[test]
fn programs_that_begin_beside_a_daemon_have_its_board() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("message-mx");
    let mac = Mac::from_nic(NIC).unwrap();
    let daemon =
        || DaemonInterface::open(&own, mac, "../message", [7, 0x0200_0000_0009].into_iter());
    let first = daemon().unwrap();
    let said = daemon().unwrap_err().to_string();
    assert!(said.contains("another daemon has the files"), "{said}");
    let program = open(&own);
    assert_eq!(program.board, own.join("../message"));
    assert_eq!(program.members, [7, 0x0200_0000_0009]);
    // The hosts that the daemon has found are known, but its VMs are no hosts to ask.
    fs::create_dir(&program.board).unwrap();
    let named_nics = [0x0200_0000_0009, 0x0200_0000_0005].map(|nic| NamedNic {
        nic,
        name: "x".to_owned(),
    });
    directory::write(&program.board, named_nics.into_iter(), |_| Ok(())).unwrap();
    assert_eq!(program.known_hosts().unwrap(), [Mac([2, 0, 0, 0, 0, 5])]);
    // A daemon that starts again finds its programs, and another program the board.
    drop(first);
    assert_eq!(open(&own).board, program.board);
    let next = daemon().unwrap();
    drop((next, program));
    // The last one has ended.
    let program = open(&own);
    assert!(program.board == own && program.members.is_empty());
    let said = daemon().unwrap_err().to_string();
    assert!(
        said.contains("begun to serve the interface without this daemon"),
        "{said}"
    );
    drop(program);
    let _daemon = daemon().unwrap();
    fs::write(own.join("members"), "0200 x\n").unwrap();
    let said = sentence(&own, NIC);
    assert!(said.contains("members is malformed"), "{said}");
}
