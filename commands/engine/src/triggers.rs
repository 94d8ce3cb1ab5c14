//! Triggers: making them, their secrets, and confirming their sample.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_commands::{
    Refusal,
    routine::Routine,
    trigger::{Create, Secret, Trigger, TriggerCommand},
};
use midwatch_events::{
    StreamName,
    id::{BotId, DeliveryId, RoutineId, TriggerId, UserId},
    key::Bytes,
    routine::Limits,
    trigger::{Intake, Scheme},
};

use crate::{
    Done, Engine, EngineError, Origin, Request,
    filters::check_filter,
    handle::{handle, handle_at, handle_for},
    secrets::hashed,
};
use midwatch_log::Pending;

/// Of two who change what both looked at, one is told.
const CHANGED: &str = "somebody changed this trigger meanwhile; look again";

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
    /// How its sender shows who it is, seen to make sense; none is a bearer secret.
    pub scheme: Option<Scheme>,
    /// Its secret.
    pub secret: NewSecret,
    /// How deliveries are taken in.
    pub intake: Intake,
    /// How runs of its own instruction run.
    pub limits: Limits,
    /// Whose rights its runs have; the first admin's, if nothing is said.
    pub owner: Option<UserId>,
}

/// Where a trigger's secret comes from.
#[derive(Clone, Default)]
pub enum NewSecret {
    /// It is made here, is sent along by the sender, and only its hash is kept.
    #[default]
    Made,
    /// The sender signs with it: it is kept sealed.
    Signing(String),
}

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Made => "Made",
            Self::Signing(_) => "Signing",
        })
    }
}

/// A trigger that was made. The only time its secret is known; it is never shown by itself.
#[derive(Clone)]
pub struct MadeTrigger {
    /// Its id.
    pub id: TriggerId,
    /// The public part of its URL.
    pub endpoint: String,
    /// Its secret, where it was made here; none when the same request had made it before.
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
    pub fn create_trigger<'a>(
        &'a self,
        new: &'a NewTrigger,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<MadeTrigger>, EngineError> {
        Box::pin(async move {
            let id = self.new_id(request);
            if self.done_before(request).await?.is_none() {
                check_filter(&new.intake)?;
                if let Some(bot) = new.bot {
                    self.workable_bot(bot).await?;
                }
                if let Some(routine) = new.routine {
                    self.existing_routine(routine).await?;
                }
            }
            let owner = self.owner(new.owner).await?;
            let endpoint = URL_SAFE_NO_PAD.encode(self.world().random::<18>());
            let (secret, kept) = self.secret(id, &new.secret)?;
            let (stream, who) = (StreamName::trigger(id), (new.bot, Some(owner)));
            let done = handle_for::<Trigger>(self, who, &stream, origin, request, |_| {
                Ok(TriggerCommand::Create(Box::new(Create {
                    trigger: id,
                    name: new.name.clone(),
                    owner,
                    endpoint: endpoint.clone(),
                    routine: new.routine,
                    bot: new.bot,
                    instruction: new.instruction.clone(),
                    scheme: new.scheme.clone(),
                    secret: kept.clone(),
                    intake: new.intake.clone(),
                    limits: new.limits.clone(),
                })))
            })
            .await?;
            let made = if done.duplicate {
                let endpoint = self.load::<Trigger>(&StreamName::trigger(id)).await?.state.endpoint;
                MadeTrigger { id, endpoint, secret: None }
            } else {
                MadeTrigger { id, endpoint, secret }
            };
            Ok(done.with(made))
        })
    }

    /// Changes a trigger: confirm, pause, resume, delete.
    ///
    /// # Errors
    /// There is no such trigger, the change makes no sense now, its Bot or owner is gone, or a fault.
    pub fn change_trigger<'a>(
        &'a self,
        id: TriggerId,
        origin: &'a Origin,
        request: Option<&'a Request>,
        command: TriggerCommand,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = StreamName::trigger(id);
            if matches!(command, TriggerCommand::Resume) {
                let state = self.load::<Trigger>(&stream).await?.state;
                let who = (state.bot, state.owner);
                return handle_for::<Trigger>(self, who, &stream, origin, request, |_| Ok(command.clone())).await;
            }
            handle::<Trigger>(self, &stream, origin, request, |_| Ok(command.clone())).await
        })
    }

    /// Lets a trigger take deliveries in by other rules; with `if_version`, only if its stream is at that version.
    ///
    /// # Errors
    /// There is no such trigger, rules that make no sense, somebody else changed it meanwhile, or a fault.
    pub fn replace_intake<'a>(
        &'a self,
        id: TriggerId,
        intake: &'a Intake,
        if_version: Option<u64>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            check_filter(intake)?;
            let seen = if_version.map(|version| (version, CHANGED));
            let stream = StreamName::trigger(id);
            handle_at::<Trigger>(self, &stream, seen, origin, request, |_| {
                Ok(TriggerCommand::ReplaceIntake(intake.clone()))
            })
            .await
        })
    }

    /// Confirms a trigger's sample; with `delivery`, only if that is the sample.
    ///
    /// # Errors
    /// No sample yet, another sample, confirmed already, or a fault.
    pub fn confirm_trigger<'a>(
        &'a self,
        id: TriggerId,
        delivery: Option<DeliveryId>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move { self.change_trigger(id, origin, request, TriggerCommand::Confirm { delivery }).await })
    }

    /// Gives a trigger another secret; the old one is good for `overlap_s` more seconds. Answers with the secret where it
    /// was made here.
    ///
    /// # Errors
    /// There is no such trigger, it takes another kind of secret, it has this one already, or a fault.
    pub fn rotate_secret<'a>(
        &'a self,
        id: TriggerId,
        new: &'a NewSecret,
        overlap_s: u32,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<Option<String>>, EngineError> {
        Box::pin(async move {
            let (shown, secret) = self.secret(id, new)?;
            let old_until = self.log().store_time().await?.plus_s(i64::from(overlap_s));
            let command = TriggerCommand::Rotate { secret, old_until };
            let done = self.change_trigger(id, origin, request, command).await?;
            // What the first of two equal requests made is in force, and was shown then.
            let shown = shown.filter(|_| !done.duplicate);
            Ok(done.with(shown))
        })
    }

    /// Lets another kind of sender post to a trigger; with `if_version`, only if its stream is at that version. The old
    /// secret opens nothing from here on. Answers with the secret where it was made here.
    ///
    /// # Errors
    /// There is no such trigger, an empty key, somebody else changed it meanwhile, or a fault.
    pub fn replace_sender<'a>(
        &'a self,
        id: TriggerId,
        (scheme, new): (Option<Scheme>, &'a NewSecret),
        if_version: Option<u64>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<Option<String>>, EngineError> {
        Box::pin(async move {
            let (shown, secret) = self.secret(id, new)?;
            let command = TriggerCommand::ReplaceSender { scheme, secret };
            let seen = if_version.map(|version| (version, CHANGED));
            let stream = StreamName::trigger(id);
            let done = handle_at::<Trigger>(self, &stream, seen, origin, request, |_| Ok(command.clone())).await?;
            let shown = shown.filter(|_| !done.duplicate);
            Ok(done.with(shown))
        })
    }

    async fn existing_routine(&self, id: RoutineId) -> Result<(), EngineError> {
        let loaded = self.load::<Routine>(&StreamName::routine(id)).await?;
        loaded.state.existing().map(|_| ()).map_err(|_| {
            Refusal::Invalid(format!("there is no routine {id}; `midwatch routine list` shows those there are")).into()
        })
    }

    /// A secret to show, and as it is kept.
    fn secret(&self, trigger: TriggerId, new: &NewSecret) -> Result<(Option<String>, Secret), EngineError> {
        match new {
            NewSecret::Made => {
                let secret = format!("mw_{}", URL_SAFE_NO_PAD.encode(self.world().random::<32>()));
                let kept = Secret { digest: hashed(&secret), sealed: None };
                Ok((Some(secret), kept))
            }
            NewSecret::Signing(key) if key.trim().is_empty() => Err(Refusal::Invalid(
                "an empty secret would let everybody in; give the key the sender signs with".into(),
            )
            .into()),
            NewSecret::Signing(key) => {
                let secrets = self.secrets()?;
                let sealed = secrets.sealed(trigger, key, self.world().random::<24>())?;
                Ok((None, Secret { digest: secrets.recognised(key), sealed: Some(Bytes(sealed)) }))
            }
        }
    }
}
