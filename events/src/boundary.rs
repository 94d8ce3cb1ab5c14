//! The boundary: stream `boundary`. The version of a published boundary is its version in this stream.

use serde::{Deserialize, Serialize};

use crate::codec::Family;

/// What can happen to the boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BoundaryEvent {
    /// From here on, every call is judged by these rules.
    #[serde(rename = "boundary.published/1")]
    Published {
        /// The whole document, as JSON text.
        document: String,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BoundaryContent {
    /// Beside [`BoundaryEvent::Published`].
    #[serde(rename = "boundary.published/1")]
    Published {
        /// Why it was published, in its author's words.
        note: String,
    },
}

impl Family for BoundaryEvent {
    type Content = BoundaryContent;
    const NAME: &'static str = "boundary";
}
