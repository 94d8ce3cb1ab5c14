//! Notices: who is told what happens here, and what became of telling them.

use midwatch_events::{
    Micros, New,
    engine::{EngineContent, EngineEvent, NoticeKind},
    id::{NoticeId, ReceiverId},
};

use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal, refusal::named};

/// How long after one attempt the next is made, in seconds, as Standard Webhooks recommends it: the first is made at
/// once, and after the tenth it is given up.
pub const SCHEDULE_S: [i64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// The heartbeats there are, in seconds.
const HEARTBEAT_S: std::ops::RangeInclusive<u32> = 10..=86_400;

/// Somebody who is told, as the stream `receiver-{id}` tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiver {
    /// Its id, once it was added.
    pub id: Option<ReceiverId>,
    /// What it is told.
    pub about: Vec<NoticeKind>,
    /// How often it is told that the clock goes, in seconds.
    pub heartbeat_s: Option<u32>,
    /// It is told nothing more.
    pub removed: bool,
}

/// What can be asked of a receiver.
#[derive(Clone, Debug)]
pub enum ReceiverCommand {
    /// Tell it from here on. The caller has seen that `url` is an address one may post to.
    Add {
        /// Its id.
        receiver: ReceiverId,
        /// What people call it.
        name: String,
        /// Where to post to.
        url: String,
        /// What it is told.
        about: Vec<NoticeKind>,
        /// How often it is told that the clock goes, in seconds.
        heartbeat_s: Option<u32>,
    },
    /// Tell it nothing more.
    Remove,
}

impl Decider for Receiver {
    type Event = EngineEvent;
    type Command = ReceiverCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: ReceiverCommand) -> Result<Vec<New<EngineEvent>>, Refusal> {
        Ok(match command {
            ReceiverCommand::Add { .. } if self.id.is_some() => return Err(Refusal::Exists("receiver")),
            ReceiverCommand::Add { receiver, name, url, mut about, heartbeat_s } => {
                named("receiver", &name)?;
                about.sort_unstable();
                about.dedup();
                if about.is_empty() && heartbeat_s.is_none() {
                    return Err(Refusal::Invalid("say what it is told, or how often it gets a heartbeat".to_owned()));
                }
                if heartbeat_s.is_some_and(|every| !HEARTBEAT_S.contains(&every)) {
                    let (from, to) = (HEARTBEAT_S.start(), HEARTBEAT_S.end());
                    return Err(Refusal::Invalid(format!("a heartbeat comes every {from} to {to} seconds")));
                }
                let facts = EngineEvent::ReceiverAdded { receiver, about, heartbeat_s };
                vec![New::with(facts, EngineContent::ReceiverAdded { name, url })]
            }
            ReceiverCommand::Remove => {
                let receiver = self.id.filter(|_| !self.removed).ok_or(Refusal::NotFound("receiver"))?;
                vec![EngineEvent::ReceiverRemoved { receiver }.into()]
            }
        })
    }

    fn evolve(&mut self, event: &EngineEvent, _at: Micros) {
        match event {
            EngineEvent::ReceiverAdded { receiver, about, heartbeat_s } => {
                self.id = Some(*receiver);
                self.about.clone_from(about);
                self.heartbeat_s = *heartbeat_s;
            }
            EngineEvent::ReceiverRemoved { .. } => self.removed = true,
            EngineEvent::LedgerCreated { .. }
            | EngineEvent::DeploymentAdopted { .. }
            | EngineEvent::SchedulingHalted { .. }
            | EngineEvent::SchedulingLifted {}
            | EngineEvent::ProcessStarted { .. }
            | EngineEvent::ProcessStopped { .. }
            | EngineEvent::ReactionStarted { .. }
            | EngineEvent::ContentErased { .. }
            | EngineEvent::NoticeRaised { .. }
            | EngineEvent::NoticeAttempted { .. }
            | EngineEvent::NoticeAskedAgain {} => {}
        }
    }
}

/// One thing a receiver is told, as the stream `notice-{id}` tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Its id, once raised.
    pub id: Option<NoticeId>,
    /// Who is told.
    pub receiver: Option<ReceiverId>,
    /// What kind of thing happened.
    pub kind: Option<NoticeKind>,
    /// When it was raised.
    pub raised_at: Micros,
    /// Attempts so far.
    pub attempts: u32,
    /// Attempts since it was raised, or asked for again.
    tries: u32,
    /// When the next attempt is due, if there is one.
    pub due: Option<Micros>,
    /// The receiver took it.
    pub delivered: bool,
}

/// What can be asked of a notice.
#[derive(Clone, Debug)]
pub enum NoticeCommand {
    /// There is something to tell.
    Raise {
        /// Its id.
        notice: NoticeId,
        /// Who is told.
        receiver: ReceiverId,
        /// What kind of thing happened.
        kind: NoticeKind,
        /// The stream it happened to.
        subject: String,
        /// The JSON text that is posted.
        body: String,
    },
    /// It was posted, or could not be.
    Attempted {
        /// Which attempt it was; another one than the next is somebody else's, who was faster.
        attempt: u32,
        /// The HTTP status, where there was an answer.
        status: Option<u16>,
        /// What stood in the way; none where the receiver took it.
        error: Option<String>,
        /// The receiver is gone, or its address may not be posted to: trying again is of no use.
        hopeless: bool,
        /// The store's time.
        now: Micros,
    },
    /// Post it once more.
    AskAgain,
}

impl Decider for Notice {
    type Event = EngineEvent;
    type Command = NoticeCommand;

    const FOLD_VERSION: u32 = 1;

    fn rests_on_instant(event: &EngineEvent) -> bool {
        matches!(event, EngineEvent::NoticeRaised { .. } | EngineEvent::NoticeAskedAgain {})
    }

    fn decide(&self, command: NoticeCommand) -> Result<Vec<New<EngineEvent>>, Refusal> {
        Ok(match command {
            NoticeCommand::Raise { .. } if self.id.is_some() => vec![],
            NoticeCommand::Raise { notice, receiver, kind, subject, body } => {
                let facts = EngineEvent::NoticeRaised { notice, receiver, kind, subject };
                vec![New::with(facts, EngineContent::NoticeRaised { body })]
            }
            NoticeCommand::Attempted { attempt, .. } if attempt != self.attempts + 1 || self.due.is_none() => vec![],
            NoticeCommand::Attempted { attempt, status, error, hopeless, now } => {
                let delivered = error.is_none();
                let wait_s = SCHEDULE_S.get(self.tries as usize).filter(|_| !delivered && !hopeless);
                let next_us = wait_s.map(|wait_s| now.plus_s(*wait_s));
                let facts = EngineEvent::NoticeAttempted { attempt, status, delivered, next_us };
                let content = error.map(|error| EngineContent::NoticeAttempted { error });
                vec![New { facts, content }]
            }
            NoticeCommand::AskAgain if self.id.is_none() => return Err(Refusal::NotFound("notice")),
            NoticeCommand::AskAgain if self.tries == 0 => {
                return Err(Refusal::AlreadySo("this notice is about to be posted already"));
            }
            NoticeCommand::AskAgain => vec![EngineEvent::NoticeAskedAgain {}.into()],
        })
    }

    fn evolve(&mut self, event: &EngineEvent, at: Micros) {
        match event {
            EngineEvent::NoticeRaised { notice, receiver, kind, subject: _ } => {
                self.id = Some(*notice);
                self.receiver = Some(*receiver);
                self.kind = Some(*kind);
                self.raised_at = at;
                self.due = Some(at);
            }
            EngineEvent::NoticeAttempted { attempt, delivered, next_us, .. } => {
                self.attempts = *attempt;
                self.tries = self.tries.saturating_add(1);
                self.due = *next_us;
                self.delivered |= *delivered;
            }
            EngineEvent::NoticeAskedAgain {} => {
                self.tries = 0;
                self.due = Some(at);
            }
            EngineEvent::LedgerCreated { .. }
            | EngineEvent::DeploymentAdopted { .. }
            | EngineEvent::SchedulingHalted { .. }
            | EngineEvent::SchedulingLifted {}
            | EngineEvent::ProcessStarted { .. }
            | EngineEvent::ProcessStopped { .. }
            | EngineEvent::ReactionStarted { .. }
            | EngineEvent::ContentErased { .. }
            | EngineEvent::ReceiverAdded { .. }
            | EngineEvent::ReceiverRemoved { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(notice: &mut Notice, command: NoticeCommand, now: Micros) -> Vec<EngineEvent> {
        let events: Vec<_> = notice.decide(command).unwrap().into_iter().map(|new| new.facts).collect();
        events.iter().for_each(|event| notice.evolve(event, now));
        events
    }

    fn failed(attempt: u32, now: Micros) -> NoticeCommand {
        let error = Some("refused".to_owned());
        NoticeCommand::Attempted { attempt, status: Some(503), error, hopeless: false, now }
    }

    fn raised() -> Notice {
        let mut notice = Notice::default();
        let (id, receiver) = (NoticeId::new(uuid::Uuid::from_u128(1)), ReceiverId::new(uuid::Uuid::from_u128(2)));
        let raise = NoticeCommand::Raise {
            notice: id,
            receiver,
            kind: NoticeKind::RunFailed,
            subject: "run-1".to_owned(),
            body: "{}".to_owned(),
        };
        step(&mut notice, raise, Micros(0));
        notice
    }

    // The schedule of Standard Webhooks: at once, then 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h later.
    #[test]
    fn a_notice_is_tried_ten_times_over_three_days() {
        let mut notice = raised();
        let (mut now, mut waits) = (Micros(0), Vec::new());
        while let Some(due) = notice.due {
            waits.push(due.since(now) / 1_000_000);
            now = due;
            let next = failed(notice.attempts + 1, now);
            step(&mut notice, next, now);
        }
        assert_eq!(waits, [0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]);
        assert!(!notice.delivered);
        step(&mut notice, NoticeCommand::AskAgain, now);
        assert_eq!(notice.due, Some(now));
        let took = NoticeCommand::Attempted { attempt: 11, status: Some(204), error: None, hopeless: false, now };
        step(&mut notice, took, now);
        assert!(notice.delivered && notice.due.is_none());
    }

    #[test]
    fn an_attempt_that_another_process_made_is_not_made_twice() {
        let mut notice = raised();
        assert_eq!(step(&mut notice, failed(1, Micros(0)), Micros(0)).len(), 1);
        assert!(notice.decide(failed(1, Micros(0))).unwrap().is_empty());
    }

    #[test]
    fn a_receiver_says_what_it_wants() {
        let add = |about, heartbeat_s| ReceiverCommand::Add {
            receiver: ReceiverId::new(uuid::Uuid::from_u128(2)),
            name: "pager".to_owned(),
            url: "https://example.com".to_owned(),
            about,
            heartbeat_s,
        };
        let receiver = Receiver::default();
        assert!(receiver.decide(add(vec![], None)).is_err());
        assert!(receiver.decide(add(vec![], Some(1))).is_err());
        assert!(receiver.decide(add(vec![], Some(60))).is_ok());
        assert!(receiver.decide(ReceiverCommand::Remove).is_err());
        let events = receiver.decide(add(vec![NoticeKind::Halt, NoticeKind::Halt], None)).unwrap();
        assert!(matches!(&events[0].facts, EngineEvent::ReceiverAdded { about, .. } if about == &[NoticeKind::Halt]));
    }
}
