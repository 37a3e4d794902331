//! Connections to the members' sockets: the supervisor checks each, then hands it over to the present data plane.

use std::os::fd::AsFd;
use std::time::Duration;

use message::remote::Member;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vhost::raw::ForeignFd;

use crate::config::Owner;
use crate::message_uplink::HOST;
use crate::processes::message::protocol::Order;
use crate::serve::connections::{self, Connection};
use crate::serve::peer::Peer;
use crate::serve::process::handle::Orders;

/// Time between two log lines about processes that may not connect to a member's socket.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// A member's socket.
#[derive(Debug)]
struct MemberSocket {
    name: String,
    /// The processes that may connect; `None` if only processes of this daemon may.
    owner: Option<Owner>,
    /// When the log last had a line about a process that may not connect.
    last_warning: Option<Instant>,
    /// The connection that was sent to the data plane, which has not acknowledged it yet.
    given: Option<ForeignFd>,
    /// The last connection that the data plane acknowledged. This task closes it, not one that others wait for: the
    /// socket's queue may hold descriptors that take long to close.
    begun: Option<ForeignFd>,
    /// The next connection to send. Further ones wait in the kernel.
    waiting: Option<Connection>,
}

/// The members' sockets, by the numbers of the members.
#[derive(Debug)]
pub(super) struct Admission {
    sockets: Vec<MemberSocket>,
    /// The tasks that accept connections; they end with this.
    _tasks: JoinSet<()>,
}

impl Admission {
    /// Accepts connections to these sockets, and sends each to `to` as a message that `wrap` makes of the member's
    /// number and the connection.
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
                last_warning: None,
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

    /// Checks a connection and sends it to the data plane if that is `up`; otherwise the next data plane gets it.
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
            return socket.refuse(&why, Instant::now());
        }
        socket.waiting = Some(connection);
        if up && socket.given.is_none() {
            socket.send_pending(number, orders);
        }
    }

    /// Notes that the data plane acknowledged a member's connection.
    pub(super) fn begun(&mut self, number: usize, orders: &mut Orders<Order>) {
        if let Some(socket) = self.sockets.get_mut(number) {
            let given = socket.given.take();
            // Processes of the daemon notice a data plane's end by the end of their connection.
            socket.begun = given.filter(|_| socket.owner.is_some());
            socket.send_pending(number, orders);
        }
    }

    /// Sends a new data plane the connections that the last one did not acknowledge.
    pub(super) fn resend(&mut self, orders: &mut Orders<Order>) {
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            match socket.given.take() {
                Some(stream) => socket.hand_over(number, stream, orders),
                None => socket.send_pending(number, orders),
            }
        }
    }
}

impl MemberSocket {
    fn check(&self, peer: &Peer) -> Result<(), String> {
        match &self.owner {
            Some(owner) => peer.check(owner),
            None if peer.is_own_user() => Ok(()),
            None => Err("only processes of the daemon may connect".to_owned()),
        }
    }

    fn refuse(&mut self, why: &str, now: Instant) {
        if self
            .last_warning
            .is_none_or(|last_warning| now.duration_since(last_warning) >= WARNING_PERIOD)
        {
            self.last_warning = Some(now);
            tracing::warn!(
                member = %self.name,
                "refused a process that is not this member's owner: {why}; check `owner`, `owner-label` and \
                    `owner-cgroup` of the member"
            );
        }
    }

    /// Sends the pending connection to the data plane.
    fn send_pending(&mut self, number: usize, orders: &mut Orders<Order>) {
        if let Some(Connection { stream, .. }) = self.waiting.take() {
            self.hand_over(number, stream, orders);
        }
    }

    fn hand_over(&mut self, number: usize, stream: ForeignFd, orders: &mut Orders<Order>) {
        match stream.as_fd().try_clone_to_owned() {
            Ok(same) => {
                self.given = Some(stream);
                orders.push(Order::Admit(number), Some(same));
            }
            Err(error) => {
                tracing::error!(member = %self.name, %error, "cannot pass a connection to the message plane");
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
        let stream = ForeignFd::from(OwnedFd::from(ours.into_std().unwrap()));
        let (next, welcome) = oneshot::channel();
        (Connection { stream, peer, next }, welcome)
    }

    fn with(owner: Owner) -> Admission {
        let socket = MemberSocket {
            name: "web".to_owned(),
            owner: Some(owner),
            last_warning: None,
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
        // Two data planes start that do not acknowledge the connection.
        for _ in 0..2 {
            admission.resend(&mut orders);
            assert_eq!(admits(&mut orders), 1);
        }
        assert!(welcome.await.is_err(), "the next one may come");
        let (second, _welcome) = connection();
        admission.arrived(0, second, true, &mut orders);
        assert_eq!(admits(&mut orders), 0, "one after the other");
        admission.begun(0, &mut orders);
        assert_eq!(admits(&mut orders), 1);
        admission.begun(0, &mut orders);
        admission.resend(&mut orders);
        assert_eq!(admits(&mut orders), 0, "it was begun with");
        // A member that does not exist.
        admission.arrived(7, connection().0, true, &mut orders);
        admission.begun(7, &mut orders);
        assert_eq!(admits(&mut orders), 0);
    }

    #[tokio::test]
    async fn a_foreign_process_is_refused_and_the_owner_is_not() {
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
