//! A real server on a loopback socket, over a real ledger, for the tests of this crate.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use midwatch_engine::{
    Engine, Opening, Origin,
    deployment::Outside,
    projector, reactor,
    triggers::{NewSecret, NewTrigger},
    world::World,
};
use midwatch_events::{
    Actor, StreamName,
    id::{BotId, DeliveryId, ProcessId, TriggerId, UserId},
    routine::Limits,
    trigger::Intake,
    user::Access,
};
use midwatch_log::testing::Guard;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::timeout,
};

use crate::{
    App, Settings,
    auth::SESSION_COOKIE,
    server::{Limits as Cost, Serving, serve_within},
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with the roles web, projector and reactor.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) listen: SocketAddr,
    pub(crate) hooks_listen: SocketAddr,
    pub(crate) client: reqwest::Client,
    /// An admin's API token.
    pub(crate) token: String,
    pub(crate) stop: watch::Sender<bool>,
    serving: Option<Serving>,
    url: String,
    state: Arc<TempDir>,
    _guard: Option<Guard>,
}

/// A trigger and its bearer secret.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) id: TriggerId,
    pub(crate) endpoint: String,
    pub(crate) secret: String,
}

/// A person who signed in: the cookie and the CSRF token.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) user: UserId,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

/// Short deadlines, so that tests of slow senders are quick.
pub(crate) fn quick() -> Cost {
    Cost {
        header_deadline: Duration::from_millis(400),
        body_deadline: Duration::from_millis(600),
        connections: 64,
        stop_deadline: Duration::from_secs(5),
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_within(quick()).await
    }

    pub(crate) async fn start_within(limits: Cost) -> Self {
        let (url, guard) = midwatch_log::testing::fresh_sqlite();
        let state = Arc::new(tempfile::tempdir().unwrap());
        Self::join(url, state, Some(guard), limits, None).await
    }

    /// One that knows the address senders see.
    pub(crate) async fn start_at(public_url: &str) -> Self {
        let (url, guard) = midwatch_log::testing::fresh_sqlite();
        let state = Arc::new(tempfile::tempdir().unwrap());
        Self::join(url, state, Some(guard), quick(), Some(public_url.to_owned())).await
    }

    /// One more process of the same deployment.
    pub(crate) async fn another(&self) -> Self {
        Self::join(self.url.clone(), Arc::clone(&self.state), None, quick(), None).await
    }

    async fn join(
        url: String,
        state: Arc<TempDir>,
        guard: Option<Guard>,
        limits: Cost,
        public_url: Option<String>,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let world = World::system();
        let outside = Outside { deployment: None, key: None, key_file: None, state_home: state.path().to_owned() };
        let process = ProcessId::new(world.uuid());
        let opening =
            Opening { url: url.clone(), outside, process, actor: Actor::Cli(0), repeat_window_s: None, halted: false };
        let engine = Engine::open(world, opening).await.unwrap();
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(projector::run(engine.clone(), stopping.clone()));
        tokio::spawn(reactor::run(engine.clone(), stopping.clone()));
        let settings = Arc::new(Settings { public_url });
        let app = App { engine: engine.clone(), settings, agents: None };
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let serving = serve_within(app, any, Some(any), stopping, limits).await.unwrap();
        let (_, token) = engine.issue_token("tests", Access::Admin, &by()).await.unwrap().value;
        let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        Self {
            engine,
            listen: serving.listen,
            hooks_listen: serving.hooks_listen.unwrap(),
            client,
            token,
            stop,
            serving: Some(serving),
            url,
            state,
            _guard: guard,
        }
    }

    /// Stops, and comes back when everything under way is answered.
    /// As another program would.
    pub(crate) async fn sql(&self, statement: &str) {
        let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    }

    pub(crate) async fn stopped(&mut self) {
        self.stop.send_replace(true);
        timeout(PATIENCE, self.serving.take().unwrap().finished()).await.unwrap();
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.listen)
    }

    /// A request with nobody's secret.
    pub(crate) fn plain(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.at(path))
    }

    /// An admin's request.
    pub(crate) fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.plain(method, path).bearer_auth(&self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        answered(self.admin(Method::GET, path).send().await.unwrap(), StatusCode::OK).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let response = self.admin(Method::POST, path).json(body).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.text().await.unwrap());
        response.json().await.unwrap()
    }

    /// A person who signed in.
    pub(crate) async fn sign_in(&self, name: &str, role: Access) -> Session {
        let user = self.engine.invite(name, role, &by(), None).await.unwrap().value;
        let link = self.engine.issue_link(Some(user), &by()).await.unwrap().value;
        let session = self.engine.sign_in(&link).await.unwrap().value;
        let caller = self.engine.caller_by_session(&session.secret).await.unwrap().unwrap();
        let csrf = self.engine.secrets().unwrap().csrf(&caller.session.unwrap()).to_string();
        Session { user, cookie: format!("{SESSION_COOKIE}={}", session.secret), csrf }
    }

    /// A browser's request, as our own pages make it.
    pub(crate) fn browser(&self, session: &Session, method: Method, path: &str) -> RequestBuilder {
        self.plain(method, path)
            .header("cookie", &session.cookie)
            .header("sec-fetch-site", "same-origin")
            .header("x-csrf-token", &session.csrf)
    }

    pub(crate) async fn bot(&self) -> BotId {
        self.engine.register_bot("ops", None, &by(), None).await.unwrap().value
    }

    pub(crate) async fn hook(&self) -> Hook {
        self.hook_with(Intake::default()).await
    }

    pub(crate) async fn hook_with(&self, intake: Intake) -> Hook {
        let bot = Some(self.bot().await);
        let instruction = Some("look at it".to_owned());
        let (name, limits) = ("door".to_owned(), Limits::default());
        let (scheme, secret) = (None, NewSecret::Made);
        let new = NewTrigger { name, routine: None, bot, instruction, intake, limits, scheme, secret, owner: None };
        let made = self.engine.create_trigger(&new, &by(), None).await.unwrap().value;
        Hook { id: made.id, endpoint: made.endpoint, secret: made.secret.unwrap() }
    }

    /// A trigger for a sender of a preset, with the secret it signs or sends along.
    pub(crate) async fn hook_of(&self, preset: &str, secret: Option<&str>, intake: Intake) -> Hook {
        self.hook_by(preset, None, secret, intake).await
    }

    pub(crate) async fn hook_by(
        &self,
        preset: &str,
        template: Option<&str>,
        secret: Option<&str>,
        intake: Intake,
    ) -> Hook {
        let random = self.engine.world().random::<32>();
        let prepared = crate::senders::prepare(preset, template, secret, random).unwrap();
        let new = NewTrigger {
            name: preset.to_owned(),
            routine: None,
            bot: Some(self.bot().await),
            instruction: Some("look at it".to_owned()),
            intake,
            limits: Limits::default(),
            scheme: prepared.scheme,
            secret: prepared.secret,
            owner: None,
        };
        let made = self.engine.create_trigger(&new, &by(), None).await.unwrap().value;
        let secret = prepared.made.or(made.secret).or(secret.map(str::to_owned)).unwrap();
        Hook { id: made.id, endpoint: made.endpoint, secret }
    }

    /// A sender's request.
    pub(crate) fn deliver(&self, hook: &Hook) -> RequestBuilder {
        self.plain(Method::POST, &format!("/hooks/{}", hook.endpoint)).bearer_auth(&hook.secret)
    }

    /// How many deliveries there are in the ledger.
    pub(crate) async fn deliveries(&self) -> usize {
        let filter = midwatch_log::Filter { event_types: vec!["delivery.received".to_owned()], ..Default::default() };
        self.engine.log().read_all(0, 10_000, &filter).await.unwrap().0.len()
    }

    /// What a delivery's content is.
    pub(crate) async fn received(&self, delivery: &Value) -> midwatch_events::delivery::Received {
        let delivery: DeliveryId = delivery.as_str().unwrap().parse().unwrap();
        let events = self.engine.log().read_stream(&StreamName::delivery(delivery), 1, 1).await.unwrap();
        match events[0].facts().unwrap() {
            midwatch_events::delivery::DeliveryEvent::Received(received) => received,
            other => panic!("{other:?}"),
        }
    }

    /// Writes bytes as they are, and reads until the other side closes, or has been silent for a second.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.listen).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        heard(&mut stream).await
    }
}

/// What comes back until the other side closes, or has been silent for a second.
pub(crate) async fn heard(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4_096];
    while let Ok(Ok(length @ 1..)) = timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..length]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Somebody on the command line.
pub(crate) fn by() -> Origin {
    Origin::of(Actor::Cli(0))
}

/// An answer's JSON, if it has this status.
pub(crate) async fn answered(response: Response, status: StatusCode) -> Value {
    let (found, text) = (response.status(), response.text().await.unwrap());
    assert_eq!(found, status, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A problem with this status and code.
pub(crate) async fn problem(response: Response, status: StatusCode, code: &str) -> Value {
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let problem = answered(response, status).await;
    assert_eq!(content_type, "application/problem+json", "{problem}");
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status.as_u16());
    problem
}
