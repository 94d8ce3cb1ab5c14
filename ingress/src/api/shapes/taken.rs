//! Triggers, and what comes through them.

use utoipa::ToSchema;

use super::Limits;

/// A trigger.
#[derive(ToSchema)]
pub(crate) struct Trigger {
    /// The trigger.
    #[schema(format = Uuid)]
    id: String,
    /// Its name.
    name: String,
    /// Whose rights its runs have.
    #[schema(format = Uuid)]
    owner: String,
    /// The public part of its address: `/hooks/{endpoint}`.
    endpoint: String,
    /// The routine it hands work to.
    #[schema(format = Uuid)]
    routine: Option<String>,
    /// The Bot that follows its own instruction.
    #[schema(format = Uuid)]
    bot: Option<String>,
    /// How its sender shows who it is; a bearer secret, if this is null.
    scheme: Option<Scheme>,
    /// How deliveries are taken in.
    intake: Intake,
    /// How runs of its own instruction run.
    limits: Limits,
    /// `active` or `paused`.
    state: String,
    /// The first authenticated delivery.
    #[schema(format = Uuid)]
    sample: Option<String>,
    /// Whether an admin has read the sample, so that deliveries become runs.
    confirmed: bool,
    /// When.
    #[schema(format = DateTime)]
    confirmed_at: Option<String>,
    /// Until when the old secret is good too.
    #[schema(format = DateTime)]
    old_secret_until: Option<String>,
    /// When the secret last brought a delivery that was recorded.
    #[schema(format = DateTime)]
    secret_used_at: Option<String>,
    /// When the old one last did.
    #[schema(format = DateTime)]
    old_secret_used_at: Option<String>,
    /// How many deliveries ever had each status.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    counts: String,
    /// Deliveries that wait for their turn now.
    waiting: Vec<String>,
    /// When the last delivery came.
    #[schema(format = DateTime)]
    last_received_at: Option<String>,
    /// The live run of its own instruction.
    #[schema(format = Uuid)]
    live_run: Option<String>,
    /// When it was created.
    #[schema(format = DateTime)]
    created_at: String,
    /// The version of its stream.
    version: u64,
}

/// How deliveries are taken in.
#[derive(ToSchema)]
#[schema(as = IntakeInForce)]
pub(crate) struct Intake {
    /// The largest body, in bytes.
    body_bytes_max: u32,
    /// How long an equal body without an id is the same delivery, in seconds; 0 is off.
    duplicate_window_s: u32,
    /// How many deliveries may wait.
    queue_max: u32,
    /// How long one may wait, in seconds.
    queue_age_s: u32,
    /// JSON pointers into the body whose values together are a delivery's id; absent where there are none.
    id_pointers: Option<Vec<String>>,
    /// What happens while its target is busy: `queue` where it is absent, `coalesce` or `refuse`.
    when_busy: Option<String>,
    /// The event types it takes; all where it is absent.
    event_types: Option<Vec<String>>,
    /// A condition in CEL over `headers`, `body` and `event_type`.
    filter: Option<String>,
    /// How many authentic deliveries it takes in a minute, over all processes.
    per_minute_max: Option<u32>,
    /// For how many days headers and bodies are kept.
    kept_days: Option<u32>,
}

/// How a sender shows who it is.
#[derive(ToSchema)]
pub(crate) struct Scheme {
    /// The preset's name, such as `github`.
    preset: String,
    /// What the admin wrote, where the preset is `template`; else absent.
    template: Option<String>,
}

/// A delivery.
#[derive(ToSchema)]
pub(crate) struct Delivery {
    /// The delivery.
    #[schema(format = Uuid)]
    id: String,
    /// The trigger it was posted to.
    #[schema(format = Uuid)]
    trigger: String,
    /// The routine the trigger hands work to.
    #[schema(format = Uuid)]
    routine: Option<String>,
    /// When it was recorded.
    #[schema(format = DateTime)]
    received_at: String,
    /// What became of it so far.
    status: String,
    /// Why it will not run.
    reason: Option<String>,
    /// What the sender says it is about.
    event_type: Option<String>,
    /// Its run.
    #[schema(format = Uuid)]
    run: Option<String>,
    /// Length of the body in bytes.
    body_bytes: u64,
    /// Whether the body could be read as JSON.
    parsed: bool,
    /// Why it could not.
    unparsed: Option<String>,
    /// The sender's id was used before for another body.
    id_conflict: bool,
    /// Why it is held, or was: `filter_broken` or `target_off`.
    held: Option<String>,
    /// Until when it is held.
    #[schema(format = DateTime)]
    held_until: Option<String>,
    /// How often it was let run once more.
    redeliveries: u32,
    /// Whether headers and body were erased.
    erased: bool,
    /// The sender's own id for it.
    sender_id: Option<String>,
    /// Where it stands in the ledger.
    position: u64,
    /// When its status changed last.
    #[schema(format = DateTime)]
    changed_at: String,
}

/// A redelivery of many.
#[derive(ToSchema)]
pub(crate) struct Redelivery {
    /// The redelivery.
    #[schema(format = Uuid)]
    id: String,
    /// `running`, `finished` or `cancelled`.
    state: String,
    /// Only deliveries of this trigger.
    #[schema(format = Uuid)]
    trigger: Option<String>,
    /// Only those with this status.
    status: Option<String>,
    /// Only those about this.
    event_type: Option<String>,
    /// Only those received at or after this instant.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// Only those received before this instant.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// How many there were when it was confirmed.
    count: u64,
    /// How many were let run so far.
    redelivered: u64,
    /// How many were left out so far.
    left_out: u64,
    /// When it was confirmed.
    #[schema(format = DateTime)]
    started_at: String,
    /// When it was over.
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// Where it stands in the ledger.
    position: u64,
}
