//! The row of each event.

use midwatch_events::{
    AnyEvent, Recorded,
    bot::BotEvent,
    boundary::{BoundaryContent, BoundaryEvent},
    delivery::DeliveryEvent,
    engine::{EngineContent, EngineEvent},
    repeat::{RepeatContent, RepeatEvent},
    routine::{RoutineContent, RoutineEvent, RunClaimed, RunSettled},
    run::{ApprovalAnswered, ApprovalRequested, Decision, Ended, Opened, RunContent, RunEvent},
    trigger::TriggerEvent,
    user::{UserContent, UserEvent},
};

use super::AuditRow;
use crate::projection::{of_stream, word};

pub(super) fn row(event: &AnyEvent, recorded: &Recorded) -> AuditRow {
    let mut row = empty(recorded);
    match event {
        AnyEvent::Bot(event) => row.bot(event, recorded),
        AnyEvent::Boundary(BoundaryEvent::Published { .. }, content) => {
            row.boundary = Some(recorded.version);
            row.subject = content.as_ref().map(|BoundaryContent::Published { note }| note.clone());
        }
        AnyEvent::Boundary(
            BoundaryEvent::ToolServerAdded { server, .. } | BoundaryEvent::ToolServerRemoved { server },
            _,
        ) => row.subject = Some(server.clone()),
        AnyEvent::Boundary(
            BoundaryEvent::ToolAccepted { server, tool, .. } | BoundaryEvent::ToolDropped { server, tool },
            _,
        ) => row.tool = Some(format!("mcp__{server}__{tool}")),
        AnyEvent::Delivery(event, _) => row.delivery(event, recorded),
        AnyEvent::Engine(event, content) => row.engine(event, content.as_ref()),
        AnyEvent::Repeat(event, content) => row.repeat(event, content.as_ref()),
        AnyEvent::Routine(event, content) => row.routine(event, content.as_ref(), recorded),
        AnyEvent::Run(event, content) => row.run(event, content.as_ref(), recorded),
        AnyEvent::Trigger(event, _) => row.trigger(event, recorded),
        AnyEvent::User(event, content) => row.user(event, content.as_ref()),
    }
    row
}

fn empty(recorded: &Recorded) -> AuditRow {
    AuditRow {
        position: recorded.position,
        at: recorded.recorded_at,
        event: recorded.event_type.clone(),
        actor: recorded.actor.clone(),
        bot: None,
        routine: None,
        run: None,
        trigger: None,
        delivery: None,
        tool: None,
        verdict: None,
        decision: None,
        rule: None,
        matched: Vec::new(),
        enforced: None,
        boundary: None,
        unattended: None,
        cause: None,
        repeat_count: None,
        outcome: None,
        reason: None,
        subject: None,
        fingerprint: None,
    }
}

impl AuditRow {
    fn bot(&mut self, event: &BotEvent, recorded: &Recorded) {
        self.bot = of_stream(recorded);
        self.subject = match event {
            BotEvent::Registered { name, .. } => Some(name.clone()),
            BotEvent::ToolsGranted { tools } | BotEvent::ToolsWithdrawn { tools } => Some(tools.join(", ")),
            BotEvent::Retired {} | BotEvent::Unreachable {} | BotEvent::Reachable {} => None,
        };
    }

    fn delivery(&mut self, event: &DeliveryEvent, recorded: &Recorded) {
        self.delivery = of_stream(recorded);
        match event {
            DeliveryEvent::Received(received) => {
                self.trigger = Some(received.trigger);
                self.routine = received.routine;
                self.reason = Some(word(received.status));
                self.subject.clone_from(&received.event_type);
            }
            DeliveryEvent::Queued { trigger } => self.trigger = Some(*trigger),
            DeliveryEvent::Started { trigger, run } => {
                self.trigger = Some(*trigger);
                self.run = Some(*run);
            }
            DeliveryEvent::Dropped { trigger, reason } => {
                self.trigger = Some(*trigger);
                self.reason = Some(word(reason));
            }
            DeliveryEvent::Redelivered { trigger, .. } => self.trigger = Some(*trigger),
            DeliveryEvent::RedeliveryStarted(started) => {
                self.delivery = None;
                self.trigger = started.trigger;
                self.subject = Some(format!("{} deliveries", started.count));
            }
            DeliveryEvent::RedeliveryProgressed { redelivered, .. }
            | DeliveryEvent::RedeliveryFinished { redelivered, .. } => {
                self.delivery = None;
                self.subject = Some(format!("{redelivered} deliveries"));
            }
            DeliveryEvent::RedeliveryCancelled {} => self.delivery = None,
        }
    }

    fn engine(&mut self, event: &EngineEvent, content: Option<&EngineContent>) {
        match event {
            EngineEvent::LedgerCreated { deployment, .. } | EngineEvent::DeploymentAdopted { deployment, .. } => {
                self.subject = Some(deployment.to_string());
            }
            EngineEvent::SchedulingHalted { cause } => {
                self.reason = Some(word(cause));
                self.subject = match content {
                    Some(EngineContent::SchedulingHalted { reason }) => Some(reason.clone()),
                    Some(
                        EngineContent::ContentErased { .. }
                        | EngineContent::ReceiverAdded { .. }
                        | EngineContent::NoticeRaised { .. }
                        | EngineContent::NoticeAttempted { .. },
                    )
                    | None => None,
                };
            }
            EngineEvent::ContentErased { subject, .. } => self.subject = Some(subject.clone()),
            EngineEvent::ReactionStarted { reaction, .. } => self.subject = Some(format!("reaction {reaction}")),
            EngineEvent::ReceiverAdded { receiver, .. } | EngineEvent::ReceiverRemoved { receiver } => {
                self.subject = Some(format!("receiver {receiver}"));
            }
            EngineEvent::NoticeRaised { kind, subject, .. } => {
                self.reason = Some(word(kind));
                self.subject = Some(subject.clone());
            }
            EngineEvent::NoticeAttempted { status, .. } => {
                self.subject = status.map(|status| status.to_string());
            }
            EngineEvent::NoticeAskedAgain {} => {}
            EngineEvent::SchedulingLifted {}
            | EngineEvent::ProcessStarted { .. }
            | EngineEvent::ProcessStopped { .. } => {}
        }
    }

    fn repeat(&mut self, event: &RepeatEvent, content: Option<&RepeatContent>) {
        if let RepeatEvent::ThresholdCrossed {
            threshold,
            count,
            bot,
            run,
            call: _,
            tool,
            unattended,
            routine,
            trigger,
        } = event
        {
            self.bot = Some(*bot);
            self.run = Some(*run);
            self.routine = *routine;
            self.trigger = *trigger;
            self.tool = Some(tool.clone());
            self.unattended = Some(*unattended);
            self.repeat_count = Some(*count);
            self.subject = Some(format!("going in circles: {threshold} times or more"));
            self.fingerprint = content.map(|content| match content {
                RepeatContent::Attempted { fingerprint } | RepeatContent::ThresholdCrossed { fingerprint } => {
                    fingerprint.clone()
                }
            });
        }
    }

    fn routine(&mut self, event: &RoutineEvent, content: Option<&RoutineContent>, recorded: &Recorded) {
        self.routine = of_stream(recorded);
        match event {
            RoutineEvent::Created { name, bot, .. } => {
                self.bot = Some(*bot);
                self.subject = Some(name.clone());
            }
            RoutineEvent::Renamed { name } => self.subject = Some(name.clone()),
            RoutineEvent::Rescheduled { schedule, .. } => self.subject = Some(schedule.clone()),
            RoutineEvent::WorkReplaced { work } => self.subject = Some(word(work)),
            RoutineEvent::Suspended { cause } => self.reason = Some(word(cause)),
            RoutineEvent::RunClaimed(claim) => self.claimed(claim),
            RoutineEvent::RunSettled(settled) => self.settled(settled),
            RoutineEvent::WindowsMissed { bot, first_us, last_us, count, reason, .. } => {
                self.bot = *bot;
                self.outcome = Some("missed".to_owned());
                self.reason = Some(word(reason));
                self.subject = Some(match count {
                    1 => format!("the window {last_us}"),
                    count => format!("{count} windows, {first_us} to {last_us}"),
                });
            }
            RoutineEvent::WindowSkipped { bot, window_us, reason, live, .. } => {
                self.bot = *bot;
                self.outcome = Some("skipped".to_owned());
                self.reason = Some(word(reason));
                self.run = Some(*live);
                self.subject = Some(format!("the window {window_us}"));
            }
            RoutineEvent::WindowQueued { bot, window_us, live, .. } => {
                self.bot = *bot;
                self.run = Some(*live);
                self.subject = Some(format!("the window {window_us}"));
            }
            RoutineEvent::WindowHeld { bot, window_us, reason } => {
                self.bot = *bot;
                self.reason = Some(word(reason));
                self.subject = Some(format!("the window {window_us}"));
            }
            RoutineEvent::Rearmed { cause, .. } => self.reason = Some(word(cause)),
            RoutineEvent::DeliveryQueued(queued) => {
                self.delivery = Some(queued.delivery);
                self.trigger = Some(queued.trigger);
            }
            RoutineEvent::DeliveryTaken { delivery, run } => {
                self.delivery = Some(*delivery);
                self.run = Some(*run);
            }
            RoutineEvent::DeliveryDropped { delivery, reason } => {
                self.delivery = Some(*delivery);
                self.reason = Some(word(reason));
            }
            RoutineEvent::LimitsReplaced { .. }
            | RoutineEvent::Paused {}
            | RoutineEvent::Resumed { .. }
            | RoutineEvent::Deleted {} => {}
        }
        match content {
            Some(RoutineContent::Paused { reason }) => self.subject = Some(reason.clone()),
            Some(RoutineContent::Suspended { error }) => self.subject = Some(error.clone()),
            Some(RoutineContent::Created(_) | RoutineContent::WorkReplaced(_)) | None => {}
        }
    }

    fn claimed(&mut self, claim: &RunClaimed) {
        self.run = Some(claim.run);
        self.bot = claim.bot;
        self.delivery = claim.delivery;
        self.cause = Some(claim.cause);
        self.subject = claim.window_us.map(|window| format!("the window {window}"));
    }

    fn settled(&mut self, settled: &RunSettled) {
        self.run = Some(settled.run);
        self.bot = settled.bot;
        self.outcome = Some(word(settled.outcome));
        self.reason = settled.reason.map(word);
    }

    fn trigger(&mut self, event: &TriggerEvent, recorded: &Recorded) {
        self.trigger = of_stream(recorded);
        match event {
            TriggerEvent::Created { name, routine, bot, .. } => {
                self.routine = *routine;
                self.bot = *bot;
                self.subject = Some(name.clone());
            }
            TriggerEvent::SampleCaptured { delivery } | TriggerEvent::Confirmed { delivery } => {
                self.delivery = Some(*delivery);
            }
            TriggerEvent::RunClaimed(claim) => self.claimed(claim),
            TriggerEvent::RunSettled(settled) => self.settled(settled),
            TriggerEvent::DeliveryQueued(queued) => self.delivery = Some(queued.delivery),
            TriggerEvent::DeliveryTaken { delivery, run } => {
                self.delivery = Some(*delivery);
                self.run = Some(*run);
            }
            TriggerEvent::DeliveryDropped { delivery, reason } => {
                self.delivery = Some(*delivery);
                self.reason = Some(word(reason));
            }
            TriggerEvent::SecretRotated { .. }
            | TriggerEvent::IntakeReplaced { .. }
            | TriggerEvent::SenderReplaced { .. }
            | TriggerEvent::Paused {}
            | TriggerEvent::Resumed {}
            | TriggerEvent::Deleted {} => {}
        }
    }

    fn user(&mut self, event: &UserEvent, content: Option<&UserContent>) {
        let name = content.map(|content| match content {
            UserContent::Invited { name }
            | UserContent::TokenIssued { name }
            | UserContent::BotTokenIssued { name } => name.as_str(),
        });
        self.subject = match event {
            UserEvent::Invited { role, .. } | UserEvent::TokenIssued { role, .. } => {
                Some(name.map_or_else(|| word(role), |name| format!("{name}, {}", word(role))))
            }
            UserEvent::BotTokenIssued { bot, .. } => {
                self.bot = Some(*bot);
                Some(name.map_or_else(|| "agent".to_owned(), |name| format!("{name}, agent")))
            }
            UserEvent::TokenRevoked { token } => Some(token.to_string()),
            UserEvent::EvidenceRead { subject, part } => Some(format!("{} of {subject}", word(part))),
            UserEvent::LinkIssued { .. }
            | UserEvent::SignedIn { .. }
            | UserEvent::SignedOut { .. }
            | UserEvent::EvidenceGranted {}
            | UserEvent::EvidenceWithdrawn {}
            | UserEvent::Revoked { .. } => None,
        };
    }

    fn run(&mut self, event: &RunEvent, content: Option<&RunContent>, recorded: &Recorded) {
        self.run = of_stream(recorded);
        match event {
            RunEvent::Opened(opened) => self.opened(opened),
            RunEvent::Taken { take, .. } => self.subject = Some(format!("take {take}")),
            RunEvent::TurnStarted { turn } => self.subject = Some(format!("turn {turn}")),
            RunEvent::TurnFinished { turn, calls } => self.subject = Some(format!("turn {turn}, {calls} calls")),
            RunEvent::ToolCallDecided(decision) => self.decided(decision),
            RunEvent::ToolCallEnded { decision, result, .. } => {
                self.decided(decision);
                self.outcome = Some(word(result));
            }
            RunEvent::ApprovalRequested(asked) => self.approval_requested(asked),
            RunEvent::ApprovalAnswered(answered) => self.approval_answered(answered),
            RunEvent::Ended(ended) => self.ended(ended),
            RunEvent::AttemptFailed { n, reason, .. } => {
                self.reason = reason.map(word);
                self.subject = Some(format!("attempt {n}"));
            }
            RunEvent::CallOutcomeLate { decision, result, .. } => {
                (self.bot, self.routine, self.trigger) = (Some(decision.bot), decision.routine, decision.trigger);
                self.tool = Some(decision.tool.clone());
                self.outcome = Some(word(result));
            }
            RunEvent::ReportedLate { outcome, reason, .. } => {
                self.outcome = Some(word(outcome));
                self.reason = reason.map(word);
            }
        }
        match content {
            Some(
                RunContent::ToolCallDecided { fingerprint, .. } | RunContent::ApprovalRequested { fingerprint, .. },
            ) => self.fingerprint = Some(fingerprint.clone()),
            Some(RunContent::Ended { headline, .. }) => self.subject = Some(headline.clone()),
            Some(RunContent::ReportedLate { headline, .. }) => self.subject = Some(headline.clone()),
            Some(
                RunContent::Opened { .. }
                | RunContent::TurnFinished { .. }
                | RunContent::ToolCallEnded { .. }
                | RunContent::AttemptFailed { .. }
                | RunContent::CallOutcomeLate { .. },
            )
            | None => {}
        }
    }

    fn approval_requested(&mut self, asked: &ApprovalRequested) {
        self.bot = Some(asked.bot);
        self.routine = asked.routine;
        self.trigger = asked.trigger;
        self.tool = Some(asked.tool.clone());
        self.rule = Some(asked.rule.clone());
        self.boundary = Some(asked.boundary);
        self.unattended = Some(asked.unattended);
        self.subject = Some(format!("a person is asked: {}", asked.approval));
    }

    fn approval_answered(&mut self, answered: &ApprovalAnswered) {
        self.bot = Some(answered.bot);
        self.routine = answered.routine;
        self.trigger = answered.trigger;
        self.tool = Some(answered.tool.clone());
        self.rule = Some(answered.rule.clone());
        self.outcome = Some(word(answered.answer));
        self.subject = Some(format!("the approval {}", answered.approval));
    }

    fn opened(&mut self, opened: &Opened) {
        self.bot = Some(opened.bot);
        self.routine = opened.routine;
        self.trigger = opened.trigger;
        self.delivery = opened.delivery;
        self.cause = Some(opened.cause);
        self.unattended = Some(opened.unattended);
        let window = opened.window_us.map(|window| format!("the window {window}"));
        self.subject = window.or_else(|| opened.event_type.clone());
    }

    fn decided(&mut self, decision: &Decision) {
        self.bot = Some(decision.bot);
        self.routine = decision.routine;
        self.trigger = decision.trigger;
        self.tool = Some(decision.tool.clone());
        self.verdict = Some(decision.verdict);
        self.decision = Some(decision.decision);
        self.reason = decision.refusal.map(word);
        self.rule.clone_from(&decision.rule);
        self.matched.clone_from(&decision.matched);
        self.enforced = Some(decision.enforced);
        self.boundary = Some(decision.boundary);
        self.unattended = Some(decision.unattended);
        self.cause = Some(decision.cause);
        self.repeat_count = Some(decision.repeat_count);
        self.subject = Some(decision.intent.clone());
    }

    fn ended(&mut self, ended: &Ended) {
        self.bot = Some(ended.bot);
        self.routine = ended.routine;
        self.trigger = ended.trigger;
        self.cause = Some(ended.cause);
        self.outcome = Some(word(ended.outcome));
        self.reason = ended.reason.map(word);
    }
}
