use window::ivshmem::{Doorbell, Member, Server};

use super::*;
use crate::address::Address;
use crate::handshake::CLOSED;
use crate::remote::layout::region_layout;

/// A host for one gateway, whose board is beside the host's socket.
struct Host {
    folder: tempfile::TempDir,
    server: Server,
    region: Region,
    seat: Seat,
    doorbell: Doorbell,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let region = Region::create(region_layout(1).unwrap()).unwrap();
        let seat = region.seat(0).unwrap();
        seat.set_nic(7);
        Self {
            server: Server::bind(&folder.path().join("host.sock")).unwrap(),
            folder,
            region,
            seat,
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

    /// Let it in once it has begun.
    fn welcome(&self) {
        while self.seat.opened() == 0 {}
        self.region.trunk(0).unwrap().renew().unwrap();
        self.seat.hear(self.seat.opened());
    }
}

#[test]
fn a_board_is_ready_when_its_gateway_begins() {
    let host = Host::new();
    let joins = host.join();
    let _member = host.accept();
    while host.seat.opened() == 0 {}
    assert_eq!(Board::open(&host.board()).unwrap().nic(), 7);
    assert!(Channel::connect(&host.board().join("gateway.sock")).is_ok());
    host.welcome();
    joins.join().unwrap().unwrap();
}

#[test]
fn a_gateway_of_a_board_that_has_one_does_not_begin() {
    let host = Host::new();
    let board = Board::claim(&host.board(), 7).unwrap();
    let _first = Listener::bind(&board.gateway()).unwrap();
    let joins = host.join();
    let _member = host.accept();
    let refused = joins.join().unwrap().unwrap_err();
    assert!(
        refused.to_string().contains("a gateway already"),
        "{refused}"
    );
    assert_eq!(host.seat.opened(), 0, "it would end the other one");
}

#[test]
fn an_answer_is_rung_before_the_gateway_sleeps() {
    let host = Host::new();
    let joins = host.join();
    let _member = host.accept();
    host.welcome();
    let mut gateway = joins.join().unwrap().unwrap();
    let rung = || rustix::io::read(&host.doorbell, &mut [0; 8]).is_ok();
    assert!(rung() && !rung(), "it has begun");
    let mut trunk = Trunk::new(host.region.trunk(0).unwrap().ends(Side::Creator).unwrap());
    // To an endpoint that is not open.
    let address = |nic| Address { nic, endpoint: 3 };
    let connect = ControlMessage::connects(1, address(8), address(7));
    trunk.say(connect).unwrap();
    assert!(gateway.look().unwrap());
    assert!(rung(), "the host does not know");
    assert_eq!(trunk.hear(), Ok(Some(answer(1, CLOSED, 0))));
}
