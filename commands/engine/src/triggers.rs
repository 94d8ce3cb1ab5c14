//! Triggers: making them, their secrets, and confirming their sample.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_commands::{
    Refusal,
    routine::Routine,
    trigger::{Create, Trigger, TriggerCommand},
};
use midwatch_events::{
    StreamName,
    id::{BotId, DeliveryId, RoutineId, TriggerId, UserId},
    routine::Limits,
    trigger::Intake,
};

use crate::{Done, Engine, EngineError, Origin, Request, handle::handle, secrets::hashed};

/// A trigger to make.
#[derive(Clone, Debug)]
pub struct NewTrigger {
    /// Its name.
    pub name: String,
    /// The routine it hands work to.
    pub routine: Option<RoutineId>,
    /// Or the Bot that works by `instruction`.
    pub bot: Option<BotId>,
    /// What that Bot is told.
    pub instruction: Option<String>,
    /// How deliveries are taken in.
    pub intake: Intake,
    /// How runs of its own instruction run.
    pub limits: Limits,
    /// Whose rights its runs have; the first admin's, if nothing is said.
    pub owner: Option<UserId>,
}

/// A trigger that was made. The only time its secret is known; it is never shown by itself.
#[derive(Clone)]
pub struct MadeTrigger {
    /// Its id.
    pub id: TriggerId,
    /// The public part of its URL.
    pub endpoint: String,
    /// Its bearer secret; none when the same request had made it before.
    pub secret: Option<String>,
}

impl std::fmt::Debug for MadeTrigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, endpoint, secret: _ } = self;
        f.debug_struct("MadeTrigger").field("id", id).field("endpoint", endpoint).finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes a trigger.
    ///
    /// # Errors
    /// Anything about it that makes no sense, each with a sentence; or a fault.
    pub async fn create_trigger(
        &self,
        new: &NewTrigger,
        origin: &Origin,
        request: Option<&Request>,
    ) -> Result<Done<MadeTrigger>, EngineError> {
        let id = self.new_id(request);
        if self.done_before(request).await?.is_none() {
            if let Some(bot) = new.bot {
                self.workable_bot(bot).await?;
            }
            if let Some(routine) = new.routine {
                self.existing_routine(routine).await?;
            }
        }
        let owner = self.owner(new.owner).await?;
        let endpoint = URL_SAFE_NO_PAD.encode(self.world().random::<18>());
        let secret = self.new_secret();
        let done = handle::<Trigger>(self, &StreamName::trigger(id), origin, request, |_| {
            Ok(TriggerCommand::Create(Box::new(Create {
                trigger: id,
                name: new.name.clone(),
                owner,
                endpoint: endpoint.clone(),
                routine: new.routine,
                bot: new.bot,
                instruction: new.instruction.clone(),
                secret: hashed(&secret),
                intake: new.intake.clone(),
                limits: new.limits.clone(),
            })))
        })
        .await?;
        let made = if done.duplicate {
            let endpoint = self.load::<Trigger>(&StreamName::trigger(id)).await?.state.endpoint;
            MadeTrigger { id, endpoint, secret: None }
        } else {
            MadeTrigger { id, endpoint, secret: Some(secret) }
        };
        Ok(done.with(made))
    }

    /// Changes a trigger: confirm, pause, resume, delete.
    ///
    /// # Errors
    /// There is no such trigger, the change makes no sense now, or a fault.
    pub async fn change_trigger(
        &self,
        id: TriggerId,
        origin: &Origin,
        request: Option<&Request>,
        command: TriggerCommand,
    ) -> Result<Done<()>, EngineError> {
        handle::<Trigger>(self, &StreamName::trigger(id), origin, request, |_| Ok(command.clone())).await
    }

    /// Confirms a trigger's sample; with `delivery`, only if that is the sample.
    ///
    /// # Errors
    /// No sample yet, another sample, confirmed already, or a fault.
    pub async fn confirm_trigger(
        &self,
        id: TriggerId,
        delivery: Option<DeliveryId>,
        origin: &Origin,
        request: Option<&Request>,
    ) -> Result<Done<()>, EngineError> {
        self.change_trigger(id, origin, request, TriggerCommand::Confirm { delivery }).await
    }

    /// Gives a trigger another secret; the old one is good for `overlap_s` more seconds.
    ///
    /// # Errors
    /// There is no such trigger, or a fault.
    pub async fn rotate_secret(
        &self,
        id: TriggerId,
        overlap_s: u32,
        origin: &Origin,
    ) -> Result<Done<String>, EngineError> {
        let secret = self.new_secret();
        let old_until = self.log().store_time().await?.plus_s(i64::from(overlap_s));
        let command = TriggerCommand::Rotate { secret: hashed(&secret), old_until };
        Ok(self.change_trigger(id, origin, None, command).await?.with(secret))
    }

    async fn existing_routine(&self, id: RoutineId) -> Result<(), EngineError> {
        let loaded = self.load::<Routine>(&StreamName::routine(id)).await?;
        loaded.state.existing().map(|_| ()).map_err(|_| {
            Refusal::Invalid(format!("there is no routine {id}; `midwatch routine list` shows those there are")).into()
        })
    }

    fn new_secret(&self) -> String {
        format!("mw_{}", URL_SAFE_NO_PAD.encode(self.world().random::<32>()))
    }
}
