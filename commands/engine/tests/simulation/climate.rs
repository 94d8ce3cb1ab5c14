//! The store's misfortunes, and its clock.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use midwatch_events::{Micros, Recorded};
use midwatch_log::simulated::{Boxed, Fate, Operation, Passage, Weather};

use crate::{
    chance::Chance,
    checker::{Checker, Scene},
    stage::{Stage, Wakes, locked},
};

/// How many times that a process was shown are kept: more than it reads between a decision and its append.
const SHOWN: usize = 64;

/// What the store does to those who use it.
#[derive(Debug)]
pub(crate) struct Climate {
    stage: Arc<Stage>,
    epoch_us: i64,
    pub(crate) inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    chance: Chance,
    pub(crate) checker: Checker,
    /// Nothing goes wrong any more.
    pub(crate) calm: bool,
    /// How far the store's clock is off, in microseconds.
    pub(crate) off_us: i64,
    /// Whether the store's clock may be set forward to exactly the end of a grace.
    pub(crate) to_the_edge: bool,
    /// Until when requests are lost, and which.
    pub(crate) outage: Option<(u64, Outage)>,
    /// Processes that nothing reaches and that reach nothing, until when.
    pub(crate) isolated: BTreeMap<u32, u64>,
    /// The last times each process was shown.
    shown: BTreeMap<u32, VecDeque<Micros>>,
    /// An append was sent by the task that is polled: a good moment to die.
    pub(crate) hot: bool,
    pub(crate) appends: u32,
}

/// Which requests an outage loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// All.
    All,
    /// What is changed beside the events: leases, leads, projections.
    Beside,
    /// Appends.
    Appends,
}

impl Climate {
    pub(crate) fn new(stage: Arc<Stage>, epoch_us: i64, chance: Chance, checker: Checker, to_the_edge: bool) -> Self {
        let inner = Inner {
            chance,
            checker,
            calm: false,
            off_us: 0,
            to_the_edge,
            outage: None,
            isolated: BTreeMap::new(),
            shown: BTreeMap::new(),
            hot: false,
            appends: 0,
        };
        Self { stage, epoch_us, inner: Mutex::new(inner) }
    }

    /// The store's clock.
    pub(crate) fn store_now(&self) -> Micros {
        let off_us = locked(&self.inner).off_us;
        self.at(off_us)
    }

    fn at(&self, off_us: i64) -> Micros {
        Micros(self.epoch_us + i64::try_from(self.stage.now_us()).unwrap_or(i64::MAX) + off_us)
    }

    /// The true instant at which the store's clock will show `at`.
    pub(crate) fn true_us(&self, at: Micros) -> u64 {
        let off_us = locked(&self.inner).off_us;
        u64::try_from(at.0 - self.epoch_us - off_us).unwrap_or(0)
    }
}

impl Inner {
    /// How long one way takes. What only reads mostly takes no time: there is a lot of it.
    fn span(&mut self, operation: Operation) -> Option<Duration> {
        let reads = matches!(operation, Operation::Read | Operation::Look);
        if self.chance.one_in(if reads { 10 } else { 3 }) {
            let micros = match self.chance.below(100) {
                0..=79 => 0,
                80..=96 => self.chance.between(100, 30_000),
                _ => self.chance.between(30_000, 2_000_000),
            };
            return Some(Duration::from_micros(micros));
        }
        None
    }

    fn fate(&mut self, port: u32, operation: Operation, now_us: u64) -> Fate {
        let isolated = self.isolated.get(&port).is_some_and(|until| now_us < *until);
        let lost = self.outage.is_some_and(|(until, which)| {
            now_us < until
                && match which {
                    Outage::All => true,
                    Outage::Beside => operation == Operation::Change,
                    Outage::Appends => operation == Operation::Append,
                }
        });
        let (lose, forget) = if operation == Operation::Append { (300, 100) } else { (4_000, 4_000) };
        if isolated || lost || self.chance.one_in(lose) {
            Fate::Lost
        } else if self.chance.one_in(forget) {
            Fate::Unanswered
        } else {
            Fate::Answered
        }
    }
}

impl Weather for Climate {
    fn now(&self, port: Option<u32>) -> Micros {
        let mut inner = locked(&self.inner);
        let Some(port) = port else { return self.at(inner.off_us) };
        let now = self.at(inner.off_us);
        if !inner.calm && inner.to_the_edge && inner.chance.one_in(12) {
            // A clock may be set; this is how a tick comes to fall on the very end of a grace.
            if let Some(edge) = inner.checker.next_edge(now).filter(|edge| edge.since(now) < 1_200_000_000) {
                inner.off_us += edge.since(now);
            }
        }
        let now = self.at(inner.off_us);
        let shown = inner.shown.entry(port).or_default();
        if shown.len() == SHOWN {
            shown.pop_front();
        }
        shown.push_back(now);
        now
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut inner = locked(&self.inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&inner.chance.next().to_le_bytes()[..chunk.len()]);
        }
    }

    fn passage(&self, port: u32, operation: Operation) -> Passage {
        let now_us = self.stage.now_us();
        let mut inner = locked(&self.inner);
        inner.hot |= operation == Operation::Append;
        if inner.calm {
            return Passage { there: inner.chance.one_in(8).then_some(Duration::ZERO), ..Passage::default() };
        }
        let there = inner.span(operation);
        let fate = inner.fate(port, operation, now_us);
        let flush = match inner.chance.below(4) {
            0 if operation == Operation::Append => {
                let most = inner.chance.pick(&[100_000, 100_000, 3_000_000]);
                Some(Duration::from_micros(inner.chance.below(most)))
            }
            1 => Some(Duration::ZERO),
            _ => None,
        };
        Passage { there, fate, flush, back: inner.span(operation) }
    }

    fn news(&self, _port: u32) -> Option<Duration> {
        let mut inner = locked(&self.inner);
        let micros = match inner.chance.below(10) {
            0..=5 => return None,
            6..=8 => inner.chance.between(0, 50_000),
            _ => inner.chance.between(50_000, 1_000_000),
        };
        Some(Duration::from_micros(micros))
    }

    fn tries_again(&self, _port: u32) -> bool {
        locked(&self.inner).chance.one_in(2)
    }

    fn pause(&self, span: Duration) -> Boxed {
        Box::pin(self.stage.sleep(span, Wakes::Exactly))
    }

    fn spawn(&self, task: Boxed) {
        self.stage.spawn(None, task);
    }

    fn durable(&self, port: u32, events: &[Recorded], keys: &[[u8; 32]]) {
        let now_us = self.stage.now_us();
        let mut inner = locked(&self.inner);
        inner.appends += 1;
        let Inner { checker, shown, .. } = &mut *inner;
        let none = VecDeque::new();
        let scene = Scene { port, now_us, shown: shown.get(&port).unwrap_or(&none) };
        checker.append(&scene, events, keys);
    }
}
