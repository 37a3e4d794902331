//! The memory plane's orchestrator: it shares a budget of slots out among the spaces that have no
//! number of their own.
//!
//! Each second the orchestrator requests a window of measurements from every space, lets the controller
//! ([`space::controller`]) decide, and sends the spaces their sizes. The spaces that shrink come first; such a
//! space keeps the slots that it has in use by then. The spaces that grow come second. So the sum of all slots
//! stays within the budget, except for a moment after a space with a configured number of slots was added: that
//! space has its slots at once, and the others shrink afterwards.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use space::controller::{Controller, Decision, Id};
use space::estimator::Window;
use space::resize_policy::Reason;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, timeout};

use super::space_task;
use crate::config::{MIN_SPACE_SLOTS, Objective};
use crate::status::{ControlStatus, ControlledStatus, DecisionStatus};

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 16;

/// Length of a window.
const PERIOD: Duration = Duration::from_secs(1);

/// A process that does not answer within this time is left out of the round.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of decisions in the history.
const MAX_DECISIONS: usize = 512;

/// A space whose size is to be decided.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Member {
    pub(in crate::serve) vm: String,
    pub(in crate::serve) objective: Objective,
    pub(in crate::serve) address: mpsc::Sender<space_task::Message>,
}

/// A message to the orchestrator.
#[derive(Debug)]
pub(in crate::serve) enum Message {
    /// A client requests the recent decisions and their reasons.
    Ask(oneshot::Sender<ControlStatus>),
    /// Sets the budget and the spaces. The answer comes when the spaces have their sizes.
    Share(u32, Vec<Member>, oneshot::Sender<()>),
    /// Ends the task.
    Stop,
}

/// A space, and its last known size.
#[derive(Debug)]
struct SpaceEntry {
    member: Member,
    /// The controller sizes the space.
    attached: bool,
    slots: u32,
    /// The space answered the last request.
    answers: bool,
    window: Window,
    /// The last decision.
    decision: Option<Decision>,
}

/// The running orchestrator.
#[derive(Debug)]
pub(in crate::serve) struct Orchestrator {
    budget: u32,
    controller: Controller,
    spaces: BTreeMap<Id, SpaceEntry>,
    next: Id,
    began: Instant,
    pressure: bool,
    decisions: VecDeque<DecisionStatus>,
    inbox: mpsc::Receiver<Message>,
}

impl Orchestrator {
    /// Returns an orchestrator with this budget and without spaces, and the sender for messages to it.
    pub(in crate::serve) fn new(budget: u32) -> (Self, mpsc::Sender<Message>) {
        let (sender, inbox) = mpsc::channel(INBOX);
        let orchestrator = Self {
            budget,
            controller: Controller::new(budget, MIN_SPACE_SLOTS),
            spaces: BTreeMap::new(),
            next: 0,
            began: Instant::now(),
            pressure: false,
            decisions: VecDeque::new(),
            inbox,
        };
        (orchestrator, sender)
    }

    /// Distributes slots until the message to end arrives.
    pub(in crate::serve) async fn run(mut self) {
        let mut period = tokio::time::interval(PERIOD);
        // A window contains its own length, so a late tick does no harm.
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = period.tick() => self.tick().await,
                message = self.inbox.recv() => match message {
                    // The client may be gone.
                    Some(Message::Ask(asker)) => drop(asker.send(self.status())),
                    Some(Message::Share(budget, members, done)) => {
                        self.share_budget(budget, members).await;
                        let _gone = done.send(());
                    }
                    Some(Message::Stop) | None => return,
                },
            }
        }
    }

    /// Handles a new budget, or other spaces.
    async fn share_budget(&mut self, budget: u32, members: Vec<Member>) {
        let named = |vm: &str| members.iter().any(|member| member.vm == vm);
        let gone = self
            .spaces
            .iter()
            .filter(|(_, known)| !named(&known.member.vm));
        let gone: Vec<Id> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.spaces.remove(&id);
            self.controller.detach(id);
        }
        if budget != self.budget {
            self.budget = budget;
            let decisions = self.controller.set_budget(budget);
            self.note(&decisions);
        }
        for member in members {
            let mut known = self.spaces.iter_mut();
            if let Some((id, known)) = known.find(|(_, known)| known.member.vm == member.vm) {
                self.controller.set_objective(*id, member.objective.into());
                known.member = member;
                continue;
            }
            self.add_member(member);
        }
        self.attach();
        self.send_sizes().await;
    }

    fn add_member(&mut self, member: Member) {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let known = SpaceEntry {
            member,
            attached: false,
            slots: 0,
            answers: true,
            window: Window::default(),
            decision: None,
        };
        self.spaces.insert(id, known);
    }

    /// Adds spaces to the controller that it does not size yet, as far as the budget allows.
    fn attach(&mut self) {
        let mut decisions = Vec::new();
        for (id, known) in &mut self.spaces {
            if known.attached {
                continue;
            }
            match self.controller.attach(*id, known.member.objective.into()) {
                Ok(others) => {
                    known.attached = true;
                    decisions.extend(others);
                }
                Err(_) => decisions.push(Decision {
                    space: *id,
                    slots: 0,
                    before: 0,
                    reason: Reason::HoldBudget,
                    bottleneck: None,
                    predicted: None,
                }),
            }
        }
        self.note(&decisions);
    }

    /// Handles the end of a window.
    async fn tick(&mut self) {
        self.pressure = observe::host::is_short_of_memory(Path::new("/proc"));
        let windows = self.windows().await;
        let now = self.began.elapsed().as_secs_f64();
        let decisions = self.controller.tick(now, &windows, self.pressure);
        self.note(&decisions);
        self.attach();
        self.send_sizes().await;
    }

    /// Returns the window of each space. Spaces that do not answer are omitted.
    async fn windows(&mut self) -> Vec<(Id, Window)> {
        let mut asked = Vec::new();
        for (id, known) in &self.spaces {
            let (question, answer) = oneshot::channel();
            let message = space_task::Message::Window(question);
            if known.member.address.send(message).await.is_ok() {
                asked.push((*id, answer));
            }
        }
        let by = tokio::time::Instant::now() + ANSWER_TIMEOUT;
        let mut windows = Vec::new();
        for (id, answer) in asked {
            if let Ok(Ok(window)) = tokio::time::timeout_at(by, answer).await {
                windows.push((id, window));
            }
        }
        for known in self.spaces.values_mut() {
            known.answers = false;
        }
        for (id, window) in &windows {
            if let Some(known) = self.spaces.get_mut(id) {
                (known.answers, known.window) = (true, *window);
            }
        }
        windows
    }

    /// Sends the spaces the sizes that the controller has decided.
    async fn send_sizes(&mut self) {
        let wanted =
            |spaces: &BTreeMap<Id, SpaceEntry>, controller: &Controller| -> Vec<(Id, u32, u32)> {
                let wanted = spaces.iter().filter_map(|(id, known)| {
                    let slots = controller.slots(*id)?;
                    Some((*id, known.slots, slots))
                });
                wanted.collect()
            };
        for (id, has, slots) in wanted(&self.spaces, &self.controller) {
            if slots < has {
                let kept = self.resize(id, slots).await;
                self.controller.set_reported_size(id, kept);
            }
        }
        for (id, has, slots) in wanted(&self.spaces, &self.controller) {
            if slots > has {
                // Slots that other spaces kept are not free.
                let slots = slots - self.controller.excess().min(slots - has);
                self.controller.set_reported_size(id, slots);
                self.resize(id, slots).await;
            }
        }
    }

    /// Sends a space its size; returns the size that the space then has.
    async fn resize(&mut self, id: Id, slots: u32) -> u32 {
        let Some(known) = self.spaces.get_mut(&id) else {
            return slots;
        };
        let (done, answer) = oneshot::channel();
        let message = space_task::Message::Resize(slots, self.budget, done);
        // A space that was removed, or whose process does not answer, soon has no slot in use.
        drop(known.member.address.send(message).await);
        // The orchestrator waits once a window for a space that does not answer.
        known.slots = match known.answers {
            true => match timeout(ANSWER_TIMEOUT, answer).await {
                Ok(has) => has.unwrap_or(slots),
                Err(_) => {
                    known.answers = false;
                    slots
                }
            },
            false => slots,
        };
        known.slots
    }

    /// Adds decisions that differ from the last one of their space to the history.
    fn note(&mut self, decisions: &[Decision]) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = since.unwrap_or_default().as_secs_f64();
        for decision in decisions {
            let Some(known) = self.spaces.get_mut(&decision.space) else {
                continue;
            };
            let before = known.decision.replace(*decision);
            let same = before.is_some_and(|before| before.reason == decision.reason);
            if same && decision.slots == decision.before {
                continue;
            }
            if self.decisions.len() == MAX_DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions
                .push_back(DecisionStatus::new(at, &known.member.vm, decision));
        }
    }

    fn status(&self) -> ControlStatus {
        let controlled = |known: &SpaceEntry| ControlledStatus {
            vm: known.member.vm.clone(),
            slots: known.slots,
            reason: known.decision.map(|decision| decision.reason),
            bottleneck: known.decision.and_then(|decision| decision.bottleneck),
            predicted: known.decision.and_then(|decision| decision.predicted),
            window: known.window,
        };
        ControlStatus {
            budget: self.budget,
            free: self.controller.free(),
            stretch: self.controller.stretch(),
            price: self.controller.price(),
            pressure: self.pressure,
            spaces: self.spaces.values().map(controlled).collect(),
            decisions: self.decisions.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A space that has, and reports, this number of slots in use.
    fn member(vm: &str, used: u32, blocked: f64) -> (Member, mpsc::Receiver<u32>) {
        let (address, mut inbox) = mpsc::channel(8);
        let (told, sizes) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Some(message) = inbox.recv().await {
                match message {
                    space_task::Message::Window(asker) => {
                        let window = Window {
                            seconds: 1.0,
                            arrived: 9,
                            computed: 9,
                            released: 9,
                            transmitting: 0.9,
                            computing: 0.1,
                            blocked,
                            completion: blocked,
                            in_use: used,
                            high_water: used,
                            ..Window::default()
                        };
                        let _gone = asker.send(window);
                    }
                    space_task::Message::Resize(slots, _, done) => {
                        let slots = slots.max(used);
                        told.send(slots).await.unwrap();
                        let _gone = done.send(slots);
                    }
                    _ => {}
                }
            }
        });
        let member = Member {
            vm: vm.to_owned(),
            objective: Objective::default(),
            address,
        };
        (member, sizes)
    }

    #[tokio::test]
    async fn idle_slots_move_to_waiting_spaces_and_the_sum_stays() {
        let (mut orchestrator, _outlet) = Orchestrator::new(64);
        let (idle, mut to_idle) = member("idle", 20, 0.0);
        let (busy, mut to_busy) = member("busy", 32, 0.9);
        orchestrator
            .share_budget(64, vec![idle.clone(), busy])
            .await;
        // The first space gets all slots, and then returns half of them.
        assert_eq!(to_idle.recv().await, Some(32));
        assert_eq!(to_busy.recv().await, Some(32));
        orchestrator.tick().await;
        let (idle_has, busy_has) = (to_idle.recv().await.unwrap(), to_busy.recv().await.unwrap());
        assert!(idle_has < 32 && busy_has > 32 && idle_has + busy_has <= 64);
        let status = orchestrator.status();
        let reasons: Vec<_> = status.decisions.iter().map(|made| made.reason).collect();
        assert!(reasons.contains(&Reason::ShrinkLent) && reasons.contains(&Reason::GrowBlocked));
        assert_eq!(status.spaces.len(), 2);
        // A removed space returns all its slots.
        orchestrator.share_budget(64, vec![idle]).await;
        assert_eq!(orchestrator.status().spaces.len(), 1);
        assert_eq!(orchestrator.status().free, 64 - idle_has);
    }

    #[tokio::test]
    async fn what_is_in_use_by_then_is_not_given_twice() {
        let (mut orchestrator, _outlet) = Orchestrator::new(64);
        // The space reports fewer slots than it has in use.
        let (first, mut to_first) = member("first", 60, 0.0);
        orchestrator.share_budget(64, vec![first.clone()]).await;
        assert_eq!(to_first.recv().await, Some(64));
        let (second, mut to_second) = member("second", 0, 0.0);
        orchestrator.share_budget(64, vec![first, second]).await;
        // The controller decided on 32 slots; the space keeps 60.
        assert_eq!(to_first.recv().await, Some(60));
        assert_eq!(to_second.recv().await, Some(4));
    }
}
