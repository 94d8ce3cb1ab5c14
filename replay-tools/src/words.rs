//! The words of people, senders and Bots, which can be erased or too long for an event.

use midwatch_events::{Recorded, id::BlobId, run::BlobRef};
use serde::Serialize;

use crate::terminal::block;

/// What was said: `{"text": …}`, `{"blob": ID, "length": BYTES}` where it was too long for an event, or
/// `{"erased": true}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Words {
    /// All of it.
    Text {
        /// As it was recorded.
        text: String,
    },
    /// It is kept beside the ledger.
    Blob {
        /// Under this id.
        blob: BlobId,
        /// How many bytes it has.
        length: u64,
    },
    /// It was erased. That it was there, and its commitment, stay.
    Erased {
        /// Always true.
        erased: bool,
    },
}

impl Words {
    /// What was said beside an event: `said` out of its content, erased, or nothing.
    pub(crate) fn of<C>(recorded: &Recorded, content: Option<C>, said: impl FnOnce(C) -> Option<Self>) -> Option<Self> {
        match content {
            Some(content) => said(content),
            None => recorded.erased().then_some(Self::Erased { erased: true }),
        }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(crate) fn blob(blob: &BlobRef) -> Self {
        Self::Blob { blob: blob.blob, length: blob.length }
    }

    /// Under its label, for people.
    pub(crate) fn labelled(&self, label: &str, indent: usize) -> String {
        let pad = " ".repeat(indent);
        match self {
            Self::Erased { .. } => format!("{pad}{label}: erased\n"),
            Self::Blob { blob, length } => format!("{pad}{label}: {length} bytes, kept as blob {blob}\n"),
            Self::Text { text } if text.is_empty() => format!("{pad}{label}: empty\n"),
            Self::Text { text } if !text.trim_end().contains('\n') && text.chars().count() <= 100 => {
                format!("{pad}{label}: {}", block(text.trim_end(), 0))
            }
            Self::Text { text } => format!("{pad}{label}:\n{}", block(text, indent + 2)),
        }
    }
}
