//! What every operation stands on: the log, the views, the world, and whose deployment this is.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use futures_util::future::BoxFuture;
use midwatch_commands::{Decider, Refusal, engine::Engine as Deployment};
use midwatch_events::{Actor, StreamName, engine::HaltCause, id::ProcessId};
use midwatch_log::{Log, Pending, WentBack, views::Views};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{
    EngineError,
    claims::Pace,
    deployment::{self, Outside},
    filters::Filters,
    handle::{Done, Folds, Loaded, Request, load},
    intake::{Gates, Places, Slots},
    lane::Lanes,
    secrets::Secrets,
    world::World,
};

/// How a process joins a deployment. Shown without the address, which may hold a password.
#[derive(Clone)]
pub struct Opening {
    /// The ledger's address.
    pub url: String,
    /// What of the deployment lies outside the ledger.
    pub outside: Outside,
    /// Who this process is.
    pub process: ProcessId,
    /// Who acts when nobody else does.
    pub actor: Actor,
    /// The window in which equal calls are counted, in seconds, if it was said.
    pub repeat_window_s: Option<u32>,
    /// This process starts nothing, whatever the deployment's halt says (`--halted`, `MIDWATCH_SCHEDULER=off`).
    pub halted: bool,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, outside, process, actor, repeat_window_s, halted } = self;
        let mut shown = f.debug_struct("Opening");
        shown.field("outside", outside).field("process", process).field("actor", actor);
        shown.field("repeat_window_s", repeat_window_s).field("halted", halted).finish_non_exhaustive()
    }
}

/// One process's hold on a deployment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    views: Views,
    world: World,
    folds: Folds,
    lanes: Lanes,
    places: Places,
    pace: Pace,
    filters: Filters,
    slots: Slots,
    /// Looks that many share.
    gates: Gates,
    secrets: Option<Secrets>,
    namespace: Uuid,
    repeat_window_s: u32,
    /// The ledger is this deployment's own, so its head may be kept as the highest position seen.
    remembers: bool,
    /// That the ledger went back was kept outside of it.
    noted: OnceLock<()>,
    opening: Opening,
    /// See [`crate::reactor::started`].
    reactions: OnceCell<BTreeMap<String, u64>>,
}

impl Engine {
    /// Joins the deployment as a process that may write. On an empty database the ledger, its identity, its key, its
    /// first boundary and its first admin are made.
    ///
    /// # Errors
    /// [`EngineError::Deployment`] when key or identity are missing or another's; faults of the database.
    pub fn open(world: World, opening: Opening) -> Pending<'static, Self, EngineError> {
        Box::pin(async move {
            let log = Log::open(&opening.url, midwatch_log::Open::ReadWrite).await?;
            let joined = deployment::join(&log, &world, &opening).await?;
            let views = Views::open(&opening.url, midwatch_log::Open::ReadWrite).await?;
            let own = joined.halt.is_none();
            let engine = Self::assemble(log, views, world, opening, Some((joined.secrets, own)), &joined.state);
            if let Some(found) = joined.halt {
                engine.halt_because(found).await?;
            }
            crate::projector::attach(&engine).await?;
            Ok(engine)
        })
    }

    /// Opens the ledger for reading; needs no key and writes nothing to it. Projections are still brought up to the
    /// head, which is a cache and no record.
    ///
    /// # Errors
    /// There is no ledger, or the database is at fault.
    pub fn open_reader(world: World, opening: Opening) -> Pending<'static, Self, EngineError> {
        Box::pin(async move {
            let log = Log::open(&opening.url, midwatch_log::Open::ReadOnly).await?;
            let folds = Folds::default();
            let state: Loaded<Deployment> = load(&log, &folds, &StreamName::engine()).await?;
            let views = Views::open(&opening.url, midwatch_log::Open::ReadWrite).await?;
            let engine = Self::assemble(log, views, world, opening, None, &state.state);
            crate::projector::attach(&engine).await?;
            Ok(engine)
        })
    }

    fn assemble(
        log: Log,
        views: Views,
        world: World,
        opening: Opening,
        joined: Option<(Secrets, bool)>,
        state: &Deployment,
    ) -> Self {
        let namespace = state.namespace.unwrap_or_default();
        let repeat_window_s = state.repeat_window_s;
        let (lanes, places, pace) = (Lanes::default(), Places::default(), Pace::default());
        let remembers = joined.as_ref().is_some_and(|(_, own)| *own);
        let secrets = joined.map(|(secrets, _)| secrets);
        let folds = secrets.clone().map_or_else(Folds::default, |secrets| Folds::sealing(world.clone(), secrets));
        let inner = Inner {
            log,
            views,
            world,
            folds,
            lanes,
            places,
            pace,
            filters: Filters::default(),
            slots: Slots::default(),
            gates: Gates::default(),
            secrets,
            namespace,
            repeat_window_s,
            remembers,
            noted: OnceLock::new(),
            opening,
            reactions: OnceCell::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The ledger.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// The projections' rows.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.inner.views
    }

    /// Time and chance.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.inner.world
    }

    /// The deployment's subkeys.
    ///
    /// # Errors
    /// [`EngineError::Deployment`] in a process that only reads.
    pub fn secrets(&self) -> Result<&Secrets, EngineError> {
        self.inner.secrets.as_ref().ok_or_else(|| EngineError::Deployment("this process only reads".to_owned()))
    }

    /// Namespace of derived ids.
    #[must_use]
    pub fn namespace(&self) -> Uuid {
        self.inner.namespace
    }

    /// The window in which equal calls are counted, in seconds.
    #[must_use]
    pub fn repeat_window_s(&self) -> u32 {
        self.inner.repeat_window_s
    }

    /// This process.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        self.inner.opening.process
    }

    /// How this process joined.
    #[must_use]
    pub fn opening(&self) -> &Opening {
        &self.inner.opening
    }

    /// A stream's state at its end.
    ///
    /// # Errors
    /// As [`load`].
    pub async fn load<D: Decider>(&self, stream: &StreamName) -> Result<Loaded<D>, EngineError> {
        if self.went_back().is_some() {
            // What was folded is of another history.
            self.inner.folds.clear();
            return load(&self.inner.log, &Folds::default(), stream).await;
        }
        load(&self.inner.log, &self.inner.folds, stream).await
    }

    /// Whether this process has found that the ledger lacks what it had seen, and both heads. It then appends nothing
    /// and starts nothing; the next process of this machine records why it is halted.
    #[must_use]
    pub fn went_back(&self) -> Option<WentBack> {
        let went_back = *self.inner.log.went_back().borrow();
        if let Some(WentBack { seen, .. }) = went_back
            && self.inner.remembers
        {
            // The mark outside of the ledger is what that process will find it by.
            self.inner.noted.get_or_init(|| deployment::remember(&self.inner.world, &self.inner.opening, seen));
        }
        went_back
    }

    /// A stream's state as this process last saw it, if it did; perhaps behind. Only for what becomes a condition.
    pub(crate) fn known<D: Decider>(&self, stream: &StreamName) -> Option<Loaded<D>> {
        if self.went_back().is_some() { None } else { self.inner.folds.known(stream) }
    }

    /// As [`known`](Self::known), for many who only look at it.
    pub(crate) fn known_shared<D: Decider>(&self, stream: &StreamName) -> Option<Arc<Loaded<D>>> {
        if self.went_back().is_some() { None } else { self.inner.folds.shared(stream) }
    }

    /// Whether scheduling is halted, for the deployment or for this process alone, and the version this was read at:
    /// the condition of every claim.
    ///
    /// # Errors
    /// As [`load`].
    pub fn halt(&self) -> Pending<'_, Loaded<Deployment>, EngineError> {
        Box::pin(async move {
            let mut halt = self.load::<Deployment>(&StreamName::halt()).await?;
            if self.inner.opening.halted {
                halt.state.halted.get_or_insert(HaltCause::Person);
            }
            if self.went_back().is_some() {
                halt.state.halted = Some(HaltCause::LedgerWentBack);
            }
            Ok(halt)
        })
    }

    /// Whether scheduling is halted, as this process saw it last; not halted where it never looked. What other processes
    /// did since is not in it.
    #[must_use]
    pub fn halted_when_last_seen(&self) -> bool {
        // A stream that nobody has written to is not kept.
        let halt = self.known_shared::<Deployment>(&StreamName::halt()).unwrap_or_default();
        self.inner.opening.halted || halt.state.halted.is_some() || self.went_back().is_some()
    }

    /// A refusal that comes because the same request was done before is a success; any other is a refusal.
    pub(crate) async fn seen(&self, request: Option<&Request>, refusal: Refusal) -> Result<Done<()>, EngineError> {
        self.done_before(request).await?.ok_or_else(|| refusal.into())
    }

    /// What came of the same request before; an error where its key stands for another one.
    pub(crate) async fn done_before(&self, request: Option<&Request>) -> Result<Option<Done<()>>, EngineError> {
        let Some(request) = request else { return Ok(None) };
        match self.inner.log.find_key(&request.key.hash).await? {
            None => Ok(None),
            Some((_, digest)) if digest != request.key.digest => Err(EngineError::KeyReused),
            Some((position, _)) => Ok(Some(Done { value: (), position, duplicate: true })),
        }
    }

    pub(crate) fn reactions(&self) -> &OnceCell<BTreeMap<String, u64>> {
        &self.inner.reactions
    }

    pub(crate) fn places(&self) -> &Places {
        &self.inner.places
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.inner.pace
    }

    pub(crate) fn filters(&self) -> &Filters {
        &self.inner.filters
    }

    pub(crate) fn gates(&self) -> &Gates {
        &self.inner.gates
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.inner.slots
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.inner.lanes
    }

    /// Streams folded so far.
    pub(crate) fn folds(&self) -> &Folds {
        &self.inner.folds
    }

    /// Keeps the highest position this deployment has seen outside the ledger, so that a restored copy is noticed.
    pub fn remember(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.inner.remembers
                && let Ok(head) = self.inner.log.head().await
            {
                deployment::remember(&self.inner.world, &self.inner.opening, head);
            }
        })
    }

    /// Leaves: keeps the head outside, closes the connections.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.remember().await;
            self.inner.views.close().await;
            self.inner.log.close().await;
        })
    }
}
