//! Values as people type them.

use std::fs;

#[cfg(feature = "serve")]
use midwatch_events::id::Id;

use crate::failure::Failure;

/// An id as people type it.
#[cfg(feature = "serve")]
pub(crate) fn id<Of>(text: &str) -> Result<Id<Of>, String> {
    text.parse().map_err(|_| "it is no id; an id is a UUID, as the `list` of the verb shows it".to_owned())
}

/// What was typed, or, after `@`, what the file holds.
#[cfg(feature = "serve")]
pub(crate) fn text_or_file(text: &str) -> Result<String, Failure> {
    text.strip_prefix('@').map_or_else(|| Ok(text.to_owned()), read_file)
}

/// The text of a file that was named.
pub(crate) fn read_file(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::bad_request("file", format!("cannot read {path}: {error}")))
}
