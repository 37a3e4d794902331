use window::ivshmem::{Doorbell, Member, Server};

use super::*;
use crate::address::Address;
use crate::handshake::CLOSED;
use crate::remote::layout::region_layout;

/// A host for one gateway, whose board is next to the host's socket.
struct Host {
    folder: tempfile::TempDir,
    server: Server,
    region: Region,
    page: MemberPage,
    doorbell: Doorbell,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let region = Region::create(region_layout(1).unwrap()).unwrap();
        let page = region.page(0).unwrap();
        page.set_nic(7);
        Self {
            server: Server::bind(&folder.path().join("host.sock")).unwrap(),
            folder,
            region,
            page,
            doorbell: Doorbell::new().unwrap(),
        }
    }

    fn board(&self) -> std::path::PathBuf {
        self.folder.path().join("board")
    }

    fn join(&self) -> std::thread::JoinHandle<Result<Gateway, Error>> {
        let (board, way) = (self.board(), self.folder.path().join("host.sock"));
        std::thread::spawn(move || Gateway::join(&board, &Transport::Socket(way)))
    }

    fn accept(&self) -> Member {
        loop {
            let region = self.region.as_fd();
            if let Some(socket) = self.server.accept().unwrap() {
                let member = Member::adopt(socket);
                member.admit(1, region, &self.doorbell).unwrap();
                break member;
            }
        }
    }

    /// Confirms the gateway's request to join.
    fn confirm(&self) {
        while self.page.join_number() == 0 {}
        self.region.control_window(0).unwrap().reset().unwrap();
        self.page.confirm_join(self.page.join_number());
    }
}

#[test]
fn a_board_is_ready_when_its_gateway_joins() {
    let host = Host::new();
    let joins = host.join();
    let _member = host.accept();
    while host.page.join_number() == 0 {}
    assert_eq!(Board::open(&host.board()).unwrap().nic(), 7);
    assert!(Channel::connect(&host.board().join("gateway.sock")).is_ok());
    host.confirm();
    joins.join().unwrap().unwrap();
}

/// A program of the host is woken by its socket, and never says that it polls: only a VM without a driver does.
#[test]
fn a_gateway_that_a_socket_wakes_does_not_say_that_it_polls() {
    let host = Host::new();
    host.page.set_polling(true);
    let joins = host.join();
    let _member = host.accept();
    host.confirm();
    assert!(joins.join().unwrap().unwrap().is_woken());
    assert!(!host.page.is_polling());
}

#[test]
fn a_second_gateway_of_a_board_does_not_join() {
    let host = Host::new();
    let board = Board::claim(&host.board(), 7).unwrap();
    let _first = Listener::bind(&board.gateway_to(8)).unwrap();
    let joins = host.join();
    let _member = host.accept();
    let refused = joins.join().unwrap().unwrap_err();
    assert!(
        refused.to_string().contains("a gateway already"),
        "{refused}"
    );
    assert_eq!(
        host.page.join_number(),
        0,
        "a request to join would end the other gateway"
    );
}

#[test]
fn the_host_is_woken_for_an_answer_before_the_gateway_sleeps() {
    let host = Host::new();
    let joins = host.join();
    let _member = host.accept();
    host.confirm();
    let mut gateway = joins.join().unwrap().unwrap();
    let rung = || rustix::io::read(&host.doorbell, &mut [0; 8]).is_ok();
    assert!(rung() && !rung(), "the request to join rings");
    let mut control = ControlChannel::new(
        host.region
            .control_window(0)
            .unwrap()
            .ends(Side::Creator)
            .unwrap(),
    );
    // To an endpoint that is not open.
    let address = |nic| Address { nic, endpoint: 3 };
    let connect = ControlMessage::connects(1, address(8), address(7));
    control.send(connect).unwrap();
    assert!(gateway.poll_host().unwrap());
    assert!(rung(), "the host must be woken");
    assert_eq!(
        control.receive(),
        Ok(Some(ControlMessage::refusal(1, CLOSED)))
    );
}

#[test]
fn a_gateway_that_ends_leaves_unless_another_has_asked_to_join() {
    let host = Host::new();
    for successor in [0, 77] {
        host.page.request_join(0);
        let joins = host.join();
        let _member = host.accept();
        host.confirm();
        let gateway = joins.join().unwrap().unwrap();
        let rung = || rustix::io::read(&host.doorbell, &mut [0; 8]).is_ok();
        assert!(rung());
        if successor != 0 {
            host.page.request_join(successor);
        }
        drop(gateway);
        assert_eq!(host.page.join_number(), successor);
        assert_eq!(rung(), successor == 0);
    }
}
