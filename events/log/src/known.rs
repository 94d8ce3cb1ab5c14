//! The ends of streams that the writer knows, so that they need not be looked up under the lock.
//!
//! They hold for one head only: the writer's own last commit. Where others have appended meanwhile, what they appended
//! is read first; where the ledger does not go on from that head, everything is looked up anew.

use std::collections::HashMap;

use midwatch_events::StreamName;
use uuid::Uuid;

use crate::judge::{End, Head};

/// Streams that are remembered; some MiB.
const STREAMS: usize = 1 << 16;
/// Events of others that are read rather than everything be looked up anew.
pub(crate) const GAP: u64 = 2_048;

/// What stands between the head that the versions hold for, and the one found under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// Nothing: the versions hold.
    Nothing,
    /// Others' appends, above this position.
    Events { from: u64 },
    /// Too much, or another ledger.
    Unknown,
}

/// An event of somebody else.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) position: u64,
    pub(crate) leaf_hash: [u8; 32],
    pub(crate) stream: StreamName,
    pub(crate) version: u64,
    pub(crate) event_id: Uuid,
}

/// The ends of streams at one head.
#[derive(Debug, Default)]
pub(crate) struct Known {
    position: u64,
    leaf_hash: Option<[u8; 32]>,
    ends: HashMap<StreamName, End>,
}

impl Known {
    pub(crate) fn between(&self, head: &Head) -> Between {
        if self.ends.is_empty() {
            Between::Unknown
        } else if (self.position, self.leaf_hash) == (head.position, head.leaf_hash) {
            Between::Nothing
        } else if self.position > 0 && (1..=GAP).contains(&head.position.saturating_sub(self.position)) {
            Between::Events { from: self.position }
        } else {
            Between::Unknown
        }
    }

    /// Takes up what others appended: everything from the event at the known head up to `head`. Anything else clears it.
    pub(crate) fn pass(&mut self, head: &Head, events: Vec<Passed>) {
        let mut events = events.into_iter();
        let goes_on = events
            .next()
            .is_some_and(|event| event.position == self.position && Some(event.leaf_hash) == self.leaf_hash);
        if !goes_on {
            return self.forget();
        }
        for event in events {
            self.ends.insert(event.stream, End { version: event.version, event_id: Some(event.event_id) });
        }
        (self.position, self.leaf_hash) = (head.position, head.leaf_hash);
    }

    pub(crate) fn forget(&mut self) {
        self.ends.clear();
    }

    /// Those of these streams that are known, and those that are not.
    pub(crate) fn divide<'s>(
        &self,
        streams: impl Iterator<Item = &'s StreamName>,
    ) -> (HashMap<StreamName, End>, Vec<&'s StreamName>) {
        let (mut ends, mut missing) = (HashMap::new(), Vec::new());
        for stream in streams {
            match self.ends.get(stream) {
                Some(end) => drop(ends.insert(stream.clone(), *end)),
                None => missing.push(stream),
            }
        }
        (ends, missing)
    }

    /// What the streams of a batch are at, now that it is committed and `position` is the head.
    pub(crate) fn committed(
        &mut self,
        position: u64,
        leaf_hash: Option<[u8; 32]>,
        ends: impl IntoIterator<Item = (StreamName, End)>,
    ) {
        (self.position, self.leaf_hash) = (position, leaf_hash);
        if self.ends.len() >= STREAMS {
            self.forget();
        }
        self.ends.extend(ends);
    }
}

#[cfg(test)]
mod tests {
    use midwatch_events::Micros;

    use super::*;

    fn head(position: u64, leaf: u8) -> Head {
        Head { position, leaf_hash: Some([leaf; 32]), recorded_at: Micros(0), clock: Micros(0) }
    }

    fn name(stream: &str) -> StreamName {
        StreamName::stored(stream.to_owned())
    }

    fn at(version: u64) -> End {
        End { version, event_id: Some(Uuid::from_u128(version.into())) }
    }

    fn passed(position: u8, stream: &str, version: u64) -> Passed {
        Passed {
            position: position.into(),
            leaf_hash: [position; 32],
            stream: name(stream),
            version,
            event_id: Uuid::from_u128(version.into()),
        }
    }

    fn known() -> Known {
        let mut known = Known::default();
        known.committed(5, Some([5; 32]), [(name("run-a"), at(3)), (name("run-b"), End::default())]);
        known
    }

    #[test]
    fn versions_hold_for_their_head_and_no_other() {
        assert_eq!(Known::default().between(&head(0, 0)), Between::Unknown);
        let known = known();
        assert_eq!(known.between(&head(5, 5)), Between::Nothing);
        assert_eq!(known.between(&head(5, 6)), Between::Unknown, "another event at the same position");
        assert_eq!(known.between(&head(4, 4)), Between::Unknown, "the ledger went back");
        assert_eq!(known.between(&head(6, 6)), Between::Events { from: 5 });
        assert_eq!(known.between(&head(5 + GAP + 1, 6)), Between::Unknown);
    }

    #[test]
    fn what_others_appended_is_taken_up_where_it_goes_on_from_the_known_head() {
        let mut known = known();
        known.pass(&head(7, 7), vec![passed(5, "run-a", 3), passed(6, "run-b", 1), passed(7, "run-c", 9)]);
        assert_eq!(known.between(&head(7, 7)), Between::Nothing);
        let (a, b, c, d) = (name("run-a"), name("run-b"), name("run-c"), name("run-d"));
        let (ends, missing) = known.divide([&a, &b, &c, &d].into_iter());
        assert_eq!(ends, HashMap::from([(a.clone(), at(3)), (b.clone(), at(1)), (c.clone(), at(9))]));
        assert_eq!(missing, [&d]);
        known.pass(&head(9, 9), vec![Passed { leaf_hash: [9; 32], ..passed(7, "run-a", 3) }]);
        assert!(known.divide([&a].into_iter()).0.is_empty(), "it is another ledger");
    }
}
