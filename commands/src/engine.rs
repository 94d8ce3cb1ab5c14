//! What the whole deployment shares: its identity, and whether scheduling is halted.

use std::collections::BTreeMap;

use midwatch_events::{
    Micros, New, StreamName,
    engine::{EngineContent, EngineEvent, HaltCause, Role},
    id::ProcessId,
    key::Digest,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Decider, Refusal};

/// The deployment, as the streams `engine`, `halt` or `process-{id}` tell it; each fills its own part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Namespace of derived ids: the identity that created the ledger.
    pub namespace: Option<Uuid>,
    /// The identity now.
    pub deployment: Option<Uuid>,
    /// Recognises its key.
    pub key_id: Option<Digest>,
    /// The window in which equal calls are counted, in seconds.
    pub repeat_window_s: u32,
    /// Why scheduling is halted, if it is.
    pub halted: Option<HaltCause>,
    /// When scheduling was last lifted; windows before it do not exist.
    pub lifted_at: Option<Micros>,
    /// The process runs.
    pub running: bool,
    /// Reactions that came with a later release, each with the last position it leaves alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reactions: BTreeMap<String, u64>,
}

/// What can be asked of the deployment.
#[derive(Clone, Debug)]
pub enum EngineCommand {
    /// Make the ledger this deployment's.
    CreateLedger {
        /// Its identity.
        deployment: Uuid,
        /// Recognises its key.
        key_id: Digest,
        /// The window in which equal calls are counted, in seconds.
        repeat_window_s: u32,
    },
    /// Make a copy of the ledger a deployment of its own.
    Adopt {
        /// The new identity.
        deployment: Uuid,
        /// Recognises the new key.
        key_id: Digest,
    },
    /// Start nothing any more.
    Halt {
        /// What brought it about.
        cause: HaltCause,
        /// Why, in words.
        reason: String,
    },
    /// Start again. A ledger that turned out to be a copy has to be adopted first.
    Lift {
        /// It is adopted by the same append.
        adopted: bool,
    },
    /// A process is there.
    StartProcess {
        /// The process.
        process: ProcessId,
        /// Its version.
        version: String,
        /// What it does.
        roles: Vec<Role>,
        /// The release of its time-zone data.
        tzdb: String,
    },
    /// A process leaves.
    StopProcess {
        /// The process.
        process: ProcessId,
    },
    /// Answer what happens after `head` with reactions that are new here.
    StartReactions {
        /// Their names.
        names: Vec<String>,
        /// The position of the last event there is.
        head: u64,
    },
    /// Erase words of a stream.
    EraseContent {
        /// Its name.
        subject: StreamName,
        /// The versions of its events that have content, rising.
        versions: Vec<u64>,
        /// How many bodies outside of the events go too.
        blobs: u64,
        /// Why, in words.
        reason: String,
    },
}

impl Decider for Engine {
    type Event = EngineEvent;
    type Command = EngineCommand;

    const FOLD_VERSION: u32 = 3;

    fn rests_on_instant(event: &EngineEvent) -> bool {
        matches!(event, EngineEvent::SchedulingLifted { .. })
    }

    fn decide(&self, command: EngineCommand) -> Result<Vec<New<EngineEvent>>, Refusal> {
        Ok(match command {
            EngineCommand::CreateLedger { deployment, key_id, repeat_window_s } => {
                if self.deployment.is_some() {
                    return Err(Refusal::Exists("ledger"));
                }
                vec![EngineEvent::LedgerCreated { deployment, key_id, repeat_window_s }.into()]
            }
            EngineCommand::Adopt { deployment, key_id } => {
                let previous = self.deployment.ok_or(Refusal::NotFound("deployment"))?;
                vec![EngineEvent::DeploymentAdopted { deployment, previous, key_id }.into()]
            }
            EngineCommand::Halt { cause, reason } => {
                if self.halted.is_some() {
                    return Err(Refusal::AlreadySo("scheduling is halted already"));
                }
                let facts = EngineEvent::SchedulingHalted { cause };
                vec![New::with(facts, EngineContent::SchedulingHalted { reason })]
            }
            EngineCommand::Lift { adopted } => match self.halted {
                None => return Err(Refusal::AlreadySo("scheduling is not halted")),
                Some(HaltCause::ForeignDeployment | HaltCause::LedgerWentBack) if !adopted => {
                    return Err(Refusal::NotAdopted);
                }
                Some(_) => vec![EngineEvent::SchedulingLifted {}.into()],
            },
            EngineCommand::StartProcess { process, version, roles, tzdb } => {
                vec![EngineEvent::ProcessStarted { process, version, roles, tzdb }.into()]
            }
            EngineCommand::StopProcess { process } => {
                if self.running {
                    vec![EngineEvent::ProcessStopped { process }.into()]
                } else {
                    vec![]
                }
            }
            EngineCommand::StartReactions { names, head } => {
                let new = names.into_iter().filter(|name| !self.reactions.contains_key(name));
                new.map(|reaction| EngineEvent::ReactionStarted { reaction, after: head }.into()).collect()
            }
            EngineCommand::EraseContent { subject, versions, blobs, reason } => {
                let (Some(first), Some(last)) = (versions.first(), versions.last()) else {
                    return Err(Refusal::AlreadySo("there is nothing left to erase"));
                };
                let facts = EngineEvent::ContentErased {
                    subject: subject.to_string(),
                    first_version: *first,
                    last_version: *last,
                    events: versions.len() as u64,
                    blobs,
                };
                vec![New::with(facts, EngineContent::ContentErased { reason })]
            }
        })
    }

    fn evolve(&mut self, event: &EngineEvent, at: Micros) {
        match event {
            EngineEvent::LedgerCreated { deployment, key_id, repeat_window_s } => {
                self.namespace = Some(*deployment);
                self.deployment = Some(*deployment);
                self.key_id = Some(*key_id);
                self.repeat_window_s = *repeat_window_s;
            }
            EngineEvent::DeploymentAdopted { deployment, key_id, .. } => {
                self.deployment = Some(*deployment);
                self.key_id = Some(*key_id);
            }
            EngineEvent::SchedulingHalted { cause } => self.halted = Some(*cause),
            EngineEvent::SchedulingLifted {} => {
                self.halted = None;
                self.lifted_at = Some(at);
            }
            EngineEvent::ReactionStarted { reaction, after } => {
                self.reactions.entry(reaction.clone()).or_insert(*after);
            }
            EngineEvent::ProcessStarted { .. } => self.running = true,
            EngineEvent::ProcessStopped { .. } => self.running = false,
            // What was erased is no part of any state: that is what makes erasing it harmless.
            EngineEvent::ContentErased { .. } => {}
            // They have streams and states of their own.
            EngineEvent::ReceiverAdded { .. }
            | EngineEvent::ReceiverRemoved { .. }
            | EngineEvent::NoticeRaised { .. }
            | EngineEvent::NoticeAttempted { .. }
            | EngineEvent::NoticeAskedAgain {} => {}
        }
    }
}

mod notice;

pub use notice::{Notice, NoticeCommand, Receiver, ReceiverCommand, SCHEDULE_S};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_lifted_once_and_leaves_its_instant() {
        let mut halt = Engine::default();
        assert!(halt.decide(EngineCommand::Lift { adopted: false }).is_err());
        halt.evolve(&EngineEvent::SchedulingHalted { cause: HaltCause::Person }, Micros(5));
        let again = EngineCommand::Halt { cause: HaltCause::Person, reason: String::new() };
        assert!(halt.decide(again).is_err());
        halt.evolve(&EngineEvent::SchedulingLifted {}, Micros(9));
        assert_eq!((halt.halted, halt.lifted_at), (None, Some(Micros(9))));
    }

    #[test]
    fn an_erasure_says_what_and_changes_nothing() {
        let engine = Engine::default();
        let asked = |versions| EngineCommand::EraseContent {
            subject: StreamName::halt(),
            versions,
            blobs: 1,
            reason: "asked".to_owned(),
        };
        assert!(matches!(engine.decide(asked(vec![])), Err(Refusal::AlreadySo(_))));
        let decided = engine.decide(asked(vec![2, 5, 9])).unwrap();
        let facts = EngineEvent::ContentErased {
            subject: "halt".to_owned(),
            first_version: 2,
            last_version: 9,
            events: 3,
            blobs: 1,
        };
        assert_eq!(decided[0].facts, facts);
        let mut after = engine.clone();
        after.evolve(&facts, Micros(9));
        assert_eq!(after, engine);
    }

    #[test]
    fn a_copy_is_adopted_before_its_halt_is_lifted() {
        let mut halt = Engine::default();
        halt.evolve(&EngineEvent::SchedulingHalted { cause: HaltCause::ForeignDeployment }, Micros(5));
        assert_eq!(halt.decide(EngineCommand::Lift { adopted: false }), Err(Refusal::NotAdopted));
        assert!(halt.decide(EngineCommand::Lift { adopted: true }).is_ok());
    }

    #[test]
    fn an_adopted_copy_keeps_the_namespace_of_its_ids() {
        let mut engine = Engine::default();
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let key_id = Digest([0; 32]);
        let created = EngineEvent::LedgerCreated { deployment: first, key_id, repeat_window_s: 180 };
        engine.evolve(&created, Micros(0));
        let adopted = EngineEvent::DeploymentAdopted { deployment: second, previous: first, key_id };
        engine.evolve(&adopted, Micros(1));
        assert_eq!((engine.namespace, engine.deployment), (Some(first), Some(second)));
    }
}
