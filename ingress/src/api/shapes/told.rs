//! Notices and their receivers, as they are read.

use utoipa::ToSchema;

/// Somebody who is told what happens here.
#[derive(ToSchema)]
pub(crate) struct Receiver {
    /// The receiver.
    #[schema(format = Uuid)]
    id: String,
    /// What people call it.
    name: Option<String>,
    /// Where notices are posted to.
    url: Option<String>,
    /// What it is told.
    about: Vec<String>,
    /// How often it is told that the clock goes, in seconds.
    heartbeat_s: Option<u32>,
    /// `active` or `removed`.
    state: String,
    /// When it was added.
    #[schema(format = DateTime)]
    added_at: String,
    /// Where it stands in the ledger: it is told what happened after.
    position: u64,
}

/// One thing a receiver is told.
#[derive(ToSchema)]
pub(crate) struct Notice {
    /// The notice; its receiver knows it as `webhook-id`.
    #[schema(format = Uuid)]
    id: String,
    /// Who is told.
    #[schema(format = Uuid)]
    receiver: String,
    /// What kind of thing happened.
    kind: String,
    /// The stream it happened to.
    subject: String,
    /// `waiting`, `delivered` or `failed`.
    state: String,
    /// How often it was posted.
    attempts: u32,
    /// The HTTP status of the last answer.
    status: Option<u16>,
    /// What stood in the way the last time.
    error: Option<String>,
    /// When it is posted next.
    #[schema(format = DateTime)]
    due: Option<String>,
    /// When it was raised.
    #[schema(format = DateTime)]
    raised_at: String,
    /// When it was posted last.
    #[schema(format = DateTime)]
    attempted_at: Option<String>,
    /// Where it stands in the ledger.
    position: u64,
}
