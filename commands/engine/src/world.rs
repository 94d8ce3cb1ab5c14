//! Time and chance, passed in: with a simulated world the same code runs a year in seconds.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use midwatch_events::Micros;
use tokio::sync::watch;
use uuid::Uuid;

/// A future that can be stored and sent.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A clock on the wall, one that never jumps, and waiting.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. It may jump; leases and lateness use the store's time instead.
    fn now(&self) -> Micros;
    /// Time since some fixed instant of this process; never jumps.
    fn monotonic(&self) -> Duration;
    /// Comes back after `span`.
    fn sleep(&self, span: Duration) -> Boxed<'static, ()>;
}

/// Where random bytes come from.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes` with bytes nobody can guess.
    fn fill(&self, bytes: &mut [u8]);
}

/// What polls futures that go on by themselves.
pub trait Spawn: Send + Sync + 'static {
    /// Lets `task` go on beside everything else.
    fn spawn(&self, task: Boxed<'static, ()>);
}

/// Waits until told to stop. Whoever could tell being gone is being told: a role never outlives its process' main part,
/// and never spins on a channel that is closed.
pub(crate) async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// All that the engine asks of the machine it runs on.
#[derive(Clone)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Tasks.
    pub tasks: Arc<dyn Spawn>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// The real one.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy), tasks: Arc::new(SystemTasks) }
    }

    /// `N` bytes nobody can guess.
    #[must_use]
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// A new UUIDv7 (RFC 9562, 5.7): milliseconds of now, then chance.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.clock.now().0 / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.random::<10>()).into_uuid()
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, span: Duration) -> Boxed<'static, ()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// The operating system's random bytes.
#[derive(Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        // A system without random bytes must not hand out guessable secrets: there is nothing to go on with.
        if getrandom::fill(bytes).is_err() {
            std::process::abort();
        }
    }
}

/// The tokio runtime's tasks.
#[derive(Debug)]
pub struct SystemTasks;

impl Spawn for SystemTasks {
    fn spawn(&self, task: Boxed<'static, ()>) {
        // Nobody waits for it by its handle: what it has to say it says by channels.
        drop(tokio::spawn(task));
    }
}
