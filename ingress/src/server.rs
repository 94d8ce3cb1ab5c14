//! The sockets: how many connections, how long one may dawdle, and how they end.
//!
//! hyper itself rather than `axum::serve`, which sets no timer: without one a header that never ends is waited for for
//! ever.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    http::Request,
};
use futures_util::future;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

use crate::{
    app::{App, Stopping},
    hooks::Doors,
    router,
};

mod seats;

use seats::Seats;
pub(crate) use seats::{Seat, Waiting};

/// Longest header that is read, in bytes; a longer one is answered 431.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// An answer shorter than this, in bytes, is as good as sent.
const SHORT: u64 = 64 << 10;
/// After an accept that failed (no more files, say), nothing is accepted for this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a connection may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A header that is not whole after this time is cut; also how long a connection may wait for its next request.
    pub header_deadline: Duration,
    /// A delivery's body that is not whole after this time is answered 408.
    pub body_deadline: Duration,
    /// Connections at once on each address. Where one more comes, whoever has kept us waiting longest for a header or a
    /// body is closed; never more than half of the files that the process may open.
    pub connections: usize,
    /// How long requests that are under way may take once the process is to stop.
    pub stop_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_deadline: Duration::from_secs(10),
            body_deadline: Duration::from_secs(30),
            connections: 1_024,
            stop_deadline: Duration::from_secs(10),
        }
    }
}

/// Why nothing is served. The message is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken.
    #[error("cannot listen on {address}: another process uses this port; stop it, or choose another with {option}")]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The option that names it.
        option: &'static str,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}: {reason}; choose another with {option}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: String,
        /// The option that names it.
        option: &'static str,
    },
}

/// A web role that serves.
#[derive(Debug)]
pub struct Serving {
    /// The address it listens on, with the port the system gave if 0 was asked for.
    pub listen: SocketAddr,
    /// The second address, which serves hooks only.
    pub hooks_listen: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Comes back when it was stopped and what was under way is answered.
    pub async fn finished(self) {
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a listener ended by itself");
            }
        }
    }
}

/// Where a request came from, by its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Listens, and serves until `stop` becomes true. Comes back as soon as the addresses are bound; what is asked from then
/// on is answered.
///
/// # Errors
/// [`ServeError`], when an address cannot be bound. Nothing is served then.
pub async fn serve(
    app: App,
    listen: SocketAddr,
    hooks_listen: Option<SocketAddr>,
    stop: watch::Receiver<bool>,
) -> Result<Serving, ServeError> {
    serve_within(app, listen, hooks_listen, stop, Limits::default()).await
}

/// As [`serve`], within other limits.
///
/// # Errors
/// As [`serve`].
pub async fn serve_within(
    app: App,
    listen: SocketAddr,
    hooks_listen: Option<SocketAddr>,
    stop: watch::Receiver<bool>,
    limits: Limits,
) -> Result<Serving, ServeError> {
    let (all, listen) = bind(listen, "--listen").await?;
    let hooks = match hooks_listen {
        Some(address) => Some(bind(address, "--hooks-listen").await?),
        None => None,
    };
    let doors = Doors::new(app.clone(), limits.body_deadline);
    let stopping = Stopping(stop);
    let everything = router::everything(app, Arc::clone(&doors), stopping.clone());
    let mut tasks = vec![tokio::spawn(accept(all, everything, stopping.clone(), limits))];
    let mut hooks_listen = None;
    if let Some((listener, address)) = hooks {
        hooks_listen = Some(address);
        tasks.push(tokio::spawn(accept(listener, router::hooks_only(doors), stopping, limits)));
    }
    Ok(Serving { listen, hooks_listen, tasks })
}

async fn bind(address: SocketAddr, option: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { address, option },
        _ => ServeError::Address { address, reason: error.to_string(), option },
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Accepts until told to stop, then lets what is under way be answered, and closes.
async fn accept(listener: TcpListener, router: Router, mut stopping: Stopping, limits: Limits) {
    let seats = Seats::new(limits.connections.min(files_max() / 2).max(1));
    let mut number = 0;
    let graceful = GracefulShutdown::new();
    let mut open = JoinSet::new();
    let mut stop = pin!(stopping.wait());
    loop {
        number += 1;
        let next = pin!(next(&listener, &seats, number));
        let accepted = match future::select(&mut stop, next).await {
            future::Either::Left(_) => break,
            future::Either::Right((accepted, _)) => accepted,
        };
        match accepted {
            Ok((stream, peer, seat)) => {
                let seat = Arc::new(seat);
                let watched = graceful.watch(connection(stream, peer, Arc::clone(&seat), router.clone(), limits));
                open.spawn(async move {
                    // A connection that breaks is its peer's business; one whose seat is needed is cut.
                    tokio::select! {
                        biased;
                        _ = watched => {}
                        () = seat.is_needed() => {}
                    }
                });
                while open.try_join_next().is_some() {}
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(limits.stop_deadline, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were still under way after the time a stop allows; they are cut");
    }
    open.shutdown().await;
}

/// The next connection, once there is room for one.
async fn next(listener: &TcpListener, seats: &Arc<Seats>, number: u64) -> io::Result<(TcpStream, IpAddr, Seat)> {
    // Whoever is to give way gives way to somebody: so first there is somebody.
    let (stream, peer) = listener.accept().await?;
    let seat = seats.next(number).await;
    // Answers are small and whole: waiting for more to send only delays them.
    stream.set_nodelay(true)?;
    Ok((stream, peer.ip(), seat))
}

/// Files that this process may have open at once, as the system says; many where it does not say.
fn files_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(usize::MAX)
}

fn connection(
    stream: TcpStream,
    peer: IpAddr,
    seat: Arc<Seat>,
    router: Router,
    limits: Limits,
) -> impl GracefulConnection<Output = Result<(), hyper::Error>> + Send {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(Arc::clone(&seat));
        seat.waits_for(Waiting::Nothing);
        let (answer, seat) = (router.clone().oneshot(request), Arc::clone(&seat));
        async move {
            let answered = answer.await;
            // A stream of events or a long answer takes its time; after a short one the next request is waited for.
            if answered
                .as_ref()
                .is_ok_and(|answer| answer.body().size_hint().exact().is_some_and(|length| length < SHORT))
            {
                seat.waits_for(Waiting::Header);
            }
            answered
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_deadline)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
}

#[cfg(test)]
mod tests;
