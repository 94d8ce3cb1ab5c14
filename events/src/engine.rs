//! What the whole deployment shares: streams `engine`, `halt` and `process-{id}`; and what it tells others by itself:
//! `receiver-{id}`, somebody who is told, and `notice-{id}`, one thing one of them is told.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    codec::Family,
    id::{NoticeId, ProcessId, ReceiverId},
    key::Digest,
    time::Micros,
};

/// What can happen to a deployment and its processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EngineEvent {
    /// The ledger was made, together with its deployment's identity and key. Always position 1.
    #[serde(rename = "engine.ledger_created/1")]
    LedgerCreated {
        /// The identity of the deployment; namespace of every derived id, for ever.
        deployment: Uuid,
        /// HMAC that recognises the deployment's key without revealing it.
        key_id: Digest,
        /// The sliding window in which equal calls are counted, in seconds.
        repeat_window_s: u32,
    },
    /// A person said that this copy of the ledger is now a deployment of its own.
    #[serde(rename = "engine.deployment_adopted/1")]
    DeploymentAdopted {
        /// The new identity.
        deployment: Uuid,
        /// The identity it had before.
        previous: Uuid,
        /// Recognises the key of the new deployment.
        key_id: Digest,
    },
    /// Nothing starts any more: no clock, no Run now, no deliveries.
    #[serde(rename = "engine.scheduling_halted/1")]
    SchedulingHalted {
        /// What brought it about.
        cause: HaltCause,
    },
    /// The halt is over. Windows that lay in it do not exist.
    #[serde(rename = "engine.scheduling_lifted/1")]
    SchedulingLifted {},
    /// A process joined the deployment.
    #[serde(rename = "engine.process_started/1")]
    ProcessStarted {
        /// The process.
        process: ProcessId,
        /// Its version of Midwatch.
        version: String,
        /// What it does.
        roles: Vec<Role>,
        /// The release of its time-zone data, such as `2026f`.
        tzdb: String,
    },
    /// A process left in order. One that was killed leaves no such event.
    #[serde(rename = "engine.process_stopped/1")]
    ProcessStopped {
        /// The process.
        process: ProcessId,
    },
    /// Somebody had words erased. They went with this very append; a long erasure is several of these.
    #[serde(rename = "engine.content_erased/1")]
    ContentErased {
        /// The name of the stream whose content it was.
        subject: String,
        /// The lowest version there that lost its content.
        first_version: u64,
        /// The highest.
        last_version: u64,
        /// How many events lost their content.
        events: u64,
        /// How many bodies that lay outside of the events went with it.
        blobs: u64,
    },
    /// A release brought a reaction that this ledger did not have. What happened before is not answered by it.
    #[serde(rename = "engine.reaction_started/1")]
    ReactionStarted {
        /// Its name, as it stands in the key `react/<event>/<reaction>`.
        reaction: String,
        /// The head at that moment: the last position it leaves alone.
        after: u64,
    },
    /// Somebody else's program is told what happens here.
    #[serde(rename = "engine.receiver_added/1")]
    ReceiverAdded {
        /// The receiver.
        receiver: ReceiverId,
        /// What it is told.
        about: Vec<NoticeKind>,
        /// How often it is told that the clock goes, in seconds, so that silence alarms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heartbeat_s: Option<u32>,
    },
    /// It is told nothing more.
    #[serde(rename = "engine.receiver_removed/1")]
    ReceiverRemoved {
        /// The receiver.
        receiver: ReceiverId,
    },
    /// Something happened that a receiver is to be told.
    #[serde(rename = "engine.notice_raised/1")]
    NoticeRaised {
        /// The notice.
        notice: NoticeId,
        /// Who is told.
        receiver: ReceiverId,
        /// What kind of thing happened.
        kind: NoticeKind,
        /// The name of the stream it happened to.
        subject: String,
    },
    /// It was posted, or could not be.
    #[serde(rename = "engine.notice_attempted/1")]
    NoticeAttempted {
        /// Which attempt, from 1.
        attempt: u32,
        /// The HTTP status of the answer, where there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// The receiver took it: a status from 200 to 299.
        delivered: bool,
        /// When it is tried again, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_us: Option<Micros>,
    },
    /// Somebody asked to post it once more.
    #[serde(rename = "engine.notice_asked_again/1")]
    NoticeAskedAgain {},
}

/// What a receiver of notices can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A run ended, in whatever way.
    RunEnded,
    /// A run ended, and neither succeeded nor was cancelled.
    RunFailed,
    /// A run ended refused, or a call of it was refused.
    RunRefused,
    /// Windows were missed.
    Missed,
    /// A delivery is held.
    Held,
    /// A routine was suspended.
    Suspended,
    /// A call waits for somebody's answer.
    ApprovalWaiting,
    /// A Bot makes the same call again and again.
    GoingInCircles,
    /// Scheduling was halted or lifted.
    Halt,
}

impl NoticeKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::RunEnded,
        Self::RunFailed,
        Self::RunRefused,
        Self::Missed,
        Self::Held,
        Self::Suspended,
        Self::ApprovalWaiting,
        Self::GoingInCircles,
        Self::Halt,
    ];
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EngineContent {
    /// Beside [`EngineEvent::SchedulingHalted`].
    #[serde(rename = "engine.scheduling_halted/1")]
    SchedulingHalted {
        /// Why, in a person's or the engine's words.
        reason: String,
    },
    /// Beside [`EngineEvent::ContentErased`].
    #[serde(rename = "engine.content_erased/1")]
    ContentErased {
        /// Why, in a person's words.
        reason: String,
    },
    /// Beside [`EngineEvent::ReceiverAdded`].
    #[serde(rename = "engine.receiver_added/1")]
    ReceiverAdded {
        /// What people call it.
        name: String,
        /// Where notices are posted to. Who knows it may be let in by it alone, so only admins see it.
        url: String,
    },
    /// Beside [`EngineEvent::NoticeRaised`].
    #[serde(rename = "engine.notice_raised/1")]
    NoticeRaised {
        /// The JSON text that is posted, the same at each attempt.
        body: String,
    },
    /// Beside [`EngineEvent::NoticeAttempted`], where it failed.
    #[serde(rename = "engine.notice_attempted/1")]
    NoticeAttempted {
        /// What stood in the way.
        error: String,
    },
}

impl Family for EngineEvent {
    type Content = EngineContent;
    const NAME: &'static str = "engine";
}

/// What brought a scheduling halt about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HaltCause {
    /// Somebody asked for it.
    Person,
    /// The ledger belongs to another deployment than the one outside it: a restored copy.
    ForeignDeployment,
    /// The ledger's head is below what this deployment has already seen.
    LedgerWentBack,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Serves hooks, API and dashboard.
    Web,
    /// Claims windows and reacts to events.
    Clock,
    /// Executes runs.
    Runner,
    /// Keeps the projections.
    Projector,
}

impl Role {
    /// All of them: what a process does unless it is told otherwise.
    pub const ALL: [Self; 4] = [Self::Web, Self::Clock, Self::Runner, Self::Projector];

    /// Its name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Clock => "clock",
            Self::Runner => "runner",
            Self::Projector => "projector",
        }
    }
}
