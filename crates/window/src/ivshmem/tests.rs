use super::*;

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    std::fs::write(&path, "kept").unwrap();
    assert_eq!(Server::bind(&path).unwrap_err(), Errno::EXIST);
    let bound = crate::attach::Listener::bind(&path);
    assert_eq!(bound.unwrap_err(), Errno::EXIST);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
    // A socket file is replaced, also a stale one.
    std::fs::remove_file(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Server::bind(&path).unwrap();
}

#[test]
fn a_member_receives_region_and_doorbell_and_its_end_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let server = Server::bind(&path).unwrap();
    let doorbell = Doorbell::new().unwrap();
    let region = crate::memfd::create(c"x", 4096).unwrap();
    assert!(server.accept().unwrap().is_none());
    let client = std::thread::spawn(move || Client::connect(&path).unwrap());
    let socket = loop {
        if let Some(socket) = server.accept().unwrap() {
            break socket;
        }
    };
    let mut member = Member::adopt(socket);
    member.admit(3, region.as_fd(), &doorbell).unwrap();
    let (client, memory) = client.join().unwrap();
    assert_eq!(client.id(), 3);
    assert_eq!(crate::memfd::final_length(memory.as_fd()), Some(4096));
    client.ring();
    let rung = rustix::io::read(&doorbell, &mut [0; 8]);
    assert_eq!(rung, Ok(8));
    assert!(member.check_socket() && client.take_wakeups());
    member.wake();
    let mut woken = [0; 8];
    let (count, _) = net::recv(&client.socket, &mut woken[..], RecvFlags::empty()).unwrap();
    assert_eq!((count, i64::from_le_bytes(woken)), (8, WAKE));
    assert!(member.is_process());
    drop(client);
    assert!(!member.check_socket());
}

#[test]
fn received_bytes_stay_in_the_socket_and_the_end_is_detected() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (mut member, theirs) = (Member::adopt(ours.into()), OwnedFd::from(theirs));
    assert!(member.check_socket() && !member.is_process());
    let (read, write) = rustix::pipe::pipe().unwrap();
    send_bytes(&theirs, b"w", Some(write.as_fd())).unwrap();
    drop(write);
    assert!(member.check_socket() && member.is_process());
    // The pipe's other end is still open: it is in the socket, where no process has closed it.
    let flags = rustix::event::PollFlags::HUP;
    let mut end = [rustix::event::PollFd::new(&read, flags)];
    let now = rustix::time::Timespec::default();
    assert_eq!(rustix::event::poll(&mut end, Some(&now)), Ok(0));
    drop(theirs);
    assert!(
        !member.check_socket(),
        "end of file is behind the received bytes"
    );
    member.reject();
    assert_eq!(rustix::event::poll(&mut end, Some(&now)), Ok(1));
}
