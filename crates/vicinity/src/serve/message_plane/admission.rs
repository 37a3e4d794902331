//! What connects to the members' sockets: checked here, then handed over to the data plane of the time.

use std::os::fd::AsFd;
use std::time::Duration;

use message::remote::Member;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vhost::raw::Foreign;

use crate::config::Owner;
use crate::message_uplink::HOST;
use crate::processes::message::protocol::Order;
use crate::serve::connections::{self, Connection};
use crate::serve::peer::Peer;
use crate::serve::process::handle::Orders;

/// Between two lines of the log on strangers at a member's socket.
const STRANGERS: Duration = Duration::from_secs(10);

/// A member's socket.
#[derive(Debug)]
struct MemberSocket {
    name: String,
    /// Whom it is for; none for processes of this daemon.
    owner: Option<Owner>,
    /// When a stranger was last told of in the log.
    told: Option<Instant>,
    /// Given to the data plane, which has not begun with it.
    given: Option<Foreign>,
    /// The last that it has begun with. It is closed here, not where others wait for that: in its socket may be
    /// what takes long to close.
    begun: Option<Foreign>,
    /// To be given. More of them wait in the kernel.
    waiting: Option<Connection>,
}

/// The members' sockets at work, by the numbers of the members.
#[derive(Debug)]
pub(super) struct Admission {
    sockets: Vec<MemberSocket>,
    /// They accept; end with this.
    _tasks: JoinSet<()>,
}

impl Admission {
    /// Accept what connects to these sockets, and send to `to` what `wrap` makes of it and of its number.
    pub(super) fn start<'m, M: Send + 'static>(
        members: impl Iterator<Item = &'m Member>,
        listeners: Vec<(UnixListener, Owner)>,
        to: &mpsc::Sender<M>,
        wrap: impl Fn(usize, Connection) -> M + Copy + Send + Sync + 'static,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let sockets = members.zip(listeners).enumerate();
        let sockets = sockets.map(|(number, (member, (listener, owner)))| {
            let wrap = move |connection| wrap(number, connection);
            tasks.spawn(connections::accept(listener, to.clone(), wrap));
            let ours = member.name == HOST || member.uplink;
            MemberSocket {
                name: member.name.clone(),
                owner: (!ours).then_some(owner),
                told: None,
                given: None,
                begun: None,
                waiting: None,
            }
        });
        Self {
            sockets: sockets.collect(),
            _tasks: tasks,
        }
    }

    /// Somebody connected. Without a data plane, which is `up`, there will be another one.
    pub(super) fn arrived(
        &mut self,
        number: usize,
        connection: Connection,
        up: bool,
        orders: &mut Orders<Order>,
    ) {
        let Some(socket) = self.sockets.get_mut(number) else {
            return;
        };
        if let Err(why) = socket.check(&connection.peer) {
            return socket.tell(&why, Instant::now());
        }
        socket.waiting = Some(connection);
        if up && socket.given.is_none() {
            socket.give(number, orders);
        }
    }

    /// The data plane has begun with what it was given of a member.
    pub(super) fn begun(&mut self, number: usize, orders: &mut Orders<Order>) {
        if let Some(socket) = self.sockets.get_mut(number) {
            let given = socket.given.take();
            // Processes of the daemon hear of a data plane's end by the end of their connection.
            socket.begun = given.filter(|_| socket.owner.is_some());
            socket.give(number, orders);
        }
    }

    /// Another data plane is there: it is given what the last one had not begun with.
    pub(super) fn again(&mut self, orders: &mut Orders<Order>) {
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            match socket.given.take() {
                Some(stream) => socket.hand_over(number, stream, orders),
                None => socket.give(number, orders),
            }
        }
    }
}

impl MemberSocket {
    fn check(&self, peer: &Peer) -> Result<(), String> {
        match &self.owner {
            Some(owner) => peer.check(owner),
            None if peer.is_ours() => Ok(()),
            None => Err("only processes of the daemon itself may".to_owned()),
        }
    }

    fn tell(&mut self, why: &str, now: Instant) {
        if self
            .told
            .is_none_or(|told| now.duration_since(told) >= STRANGERS)
        {
            self.told = Some(now);
            tracing::warn!(
                member = %self.name,
                "a process that is not this member's owner was turned away: {why}. Is `owner` right?"
            );
        }
    }

    /// Give what waits.
    fn give(&mut self, number: usize, orders: &mut Orders<Order>) {
        if let Some(Connection { stream, .. }) = self.waiting.take() {
            self.hand_over(number, stream, orders);
        }
    }

    fn hand_over(&mut self, number: usize, stream: Foreign, orders: &mut Orders<Order>) {
        match stream.as_fd().try_clone_to_owned() {
            Ok(same) => {
                self.given = Some(stream);
                orders.push(Order::Admit(number), Some(same));
            }
            Err(error) => {
                tracing::error!(member = %self.name, %error, "cannot hand a connection over");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use tokio::net::UnixStream;
    use tokio::sync::oneshot;

    use super::*;

    fn connection() -> (Connection, oneshot::Receiver<()>) {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        let stream = Foreign::from(OwnedFd::from(ours.into_std().unwrap()));
        let (next, welcome) = oneshot::channel();
        (Connection { stream, peer, next }, welcome)
    }

    fn with(owner: Owner) -> Admission {
        let socket = MemberSocket {
            name: "web".to_owned(),
            owner: Some(owner),
            told: None,
            given: None,
            begun: None,
            waiting: None,
        };
        Admission {
            sockets: vec![socket],
            _tasks: JoinSet::new(),
        }
    }

    fn admits(orders: &mut Orders<Order>) -> usize {
        let orders = orders.take();
        orders
            .iter()
            .filter(|order| matches!(order, Order::Admit(0)))
            .count()
    }

    #[tokio::test]
    async fn nothing_that_connects_is_lost_with_a_data_plane_and_nothing_is_given_twice() {
        let (mut admission, mut orders) = (with(Owner::default()), Orders::default());
        // There is no data plane.
        let (first, mut welcome) = connection();
        admission.arrived(0, first, false, &mut orders);
        assert_eq!(admits(&mut orders), 0);
        assert!(
            welcome
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        // Two come that do not begin with it.
        for _ in 0..2 {
            admission.again(&mut orders);
            assert_eq!(admits(&mut orders), 1);
        }
        assert!(welcome.await.is_err(), "the next one may come");
        let (second, _welcome) = connection();
        admission.arrived(0, second, true, &mut orders);
        assert_eq!(admits(&mut orders), 0, "one after the other");
        admission.begun(0, &mut orders);
        assert_eq!(admits(&mut orders), 1);
        admission.begun(0, &mut orders);
        admission.again(&mut orders);
        assert_eq!(admits(&mut orders), 0, "it was begun with");
        // Of a member that there is not.
        admission.arrived(7, connection().0, true, &mut orders);
        admission.begun(7, &mut orders);
        assert_eq!(admits(&mut orders), 0);
    }

    #[tokio::test]
    async fn a_stranger_is_turned_away_and_the_owner_let_in() {
        let own = rustix::process::geteuid().as_raw();
        let label = Some("nobody has this label".to_owned());
        let stranger = Owner {
            label,
            ..Owner::default()
        };
        let mut orders = Orders::default();
        let mut admission = with(stranger);
        let (arrived, welcome) = connection();
        admission.arrived(0, arrived, true, &mut orders);
        assert_eq!(admits(&mut orders), 0);
        assert!(welcome.await.is_err(), "the next one may come");
        let owner = Owner {
            user: Some(own),
            ..Owner::default()
        };
        let mut admission = with(owner);
        admission.arrived(0, connection().0, true, &mut orders);
        assert_eq!(admits(&mut orders), 1);
    }
}
