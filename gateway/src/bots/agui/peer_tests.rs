//! Whole conversations with a real server: `tests/agui/peer.py`, which is pydantic-ai with scripted models.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use midwatch_events::id::BotId;
use uuid::Uuid;

use super::*;
use crate::tools::files::{self, Workspace};

/// The server, for one test; it dies with it.
pub(crate) struct Peer {
    process: Child,
    pub(crate) base: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn workspace_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A missing Python is a failure, never a skip: a promise that is not tested is not kept.
fn python() -> PathBuf {
    let python = std::env::var_os("MIDWATCH_AGUI_PYTHON")
        .map_or_else(|| workspace_root().join("target/agui-venv/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "{} is missing: set MIDWATCH_AGUI_PYTHON to a Python that has tests/agui/requirements.txt",
        python.display()
    );
    python
}

/// Starts the server on a port of its own choice, and reads from its log which one that is.
pub(crate) fn start() -> Peer {
    let mut process = Command::new(python())
        .args(["-m", "uvicorn", "peer:app", "--host", "127.0.0.1", "--port", "0", "--no-access-log"])
        .current_dir(workspace_root().join("tests/agui"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = Vec::new();
    let base = loop {
        let line = log.next().unwrap_or_else(|| panic!("the server did not start: {}", seen.join("\n")));
        if let Some((_, after)) = line.split_once("Uvicorn running on ") {
            break after.split_whitespace().next().unwrap().to_owned();
        }
        seen.push(line);
    };
    // The rest of the log is read away, or the server would stop when the pipe is full.
    std::thread::spawn(move || log.for_each(drop));
    Peer { process, base }
}

impl Peer {
    fn client(&self, bot: &str, options: AguiOptions) -> AguiClient {
        let _ = rustls::crypto::ring::default_provider().install_default();
        AguiClient::new(&format!("{}/{bot}", self.base), options).unwrap()
    }

    /// One run without tools.
    async fn turn(&self, bot: &str) -> Result<RunOutcome, RunFailure> {
        let mut history = History::new();
        history.say("go");
        let input = RunInput {
            thread_id: "thread",
            run_id: "run",
            history: &history,
            tools: &[],
            state: &json!({}),
            resume: &[],
        };
        self.client(bot, AguiOptions::default()).run(input).await
    }

    /// Runs until the Bot has no pending calls, at most `turns` times; `answer` gives each call's result and error.
    async fn converse<A>(&self, bot: &str, turns: u32, answer: A) -> (History, u32)
    where
        A: AsyncFn(&ToolCall) -> (String, Option<String>),
    {
        let client = self.client(bot, AguiOptions::default());
        let tools = files::definitions();
        let mut history = History::new();
        history.say("go");
        for turn in 1..=turns {
            let run_id = format!("run-{turn}");
            let input = RunInput {
                thread_id: "thread",
                run_id: &run_id,
                history: &history,
                tools: &tools,
                state: &json!({}),
                resume: &[],
            };
            let outcome = client.run(input).await.unwrap();
            assert_eq!(outcome.ending, Ending::Finished);
            history.extend(&outcome.produced.messages);
            let pending: Vec<_> = outcome.produced.pending().cloned().collect();
            if pending.is_empty() {
                return (history, turn);
            }
            for call in &pending {
                let (content, error) = answer(call).await;
                assert!(history.answer(&call.id, content, error));
            }
            assert!(history.unanswered().is_empty());
            // As it is kept in the ledger between two turns.
            history = History::from_json(&history.to_json().unwrap()).unwrap();
        }
        (history, turns)
    }
}

fn last_text(history: &History) -> &str {
    let Some(Message::Assistant { content, .. }) = history.messages().last() else { panic!("{history:?}") };
    content
}

#[tokio::test]
async fn a_bot_talks_thinks_counts_and_uses_its_own_tools() {
    let peer = start();
    let chat = peer.turn("chat").await.unwrap();
    assert_eq!((chat.produced.last_text(), &chat.ending), (Some("Three pull requests wait."), &Ending::Finished));
    assert!(chat.produced.usage.is_empty());

    let usage = peer.turn("usage").await.unwrap().produced.usage;
    assert!(usage[0].output_tokens.unwrap() > 0, "{usage:?}");

    let think = peer.turn("think").await.unwrap().produced.messages;
    assert!(matches!(&think[0], Message::Reasoning { content, .. } if content == "I should be brief."), "{think:?}");

    let backend = peer.turn("backend").await.unwrap().produced;
    assert_eq!(backend.calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["clock"]);
    assert_eq!(backend.pending().count(), 0);
    assert_eq!(backend.last_text(), Some("The clock says 09:00"));

    let gated = peer.turn("gated").await.unwrap();
    let Ending::Interrupted(interrupts) = gated.ending else { panic!("{gated:?}") };
    assert_eq!(interrupts[0].tool_call_id.as_deref(), Some("call_wire"));
}

#[tokio::test]
async fn a_bot_works_in_its_workspace_through_the_offered_tools() {
    let peer = start();
    let root = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(root.path(), BotId::new(Uuid::from_u128(1))).unwrap();
    let (history, turns) = peer
        .converse("notes", 5, async |call| {
            let arguments = serde_json::from_str(&call.arguments).unwrap();
            let result = workspace.call(&call.name, &arguments).await;
            (result.text, None)
        })
        .await;
    assert_eq!((last_text(&history), turns), ("It says: tea at four", 3));
    let kept = root.path().join(BotId::new(Uuid::from_u128(1)).to_string()).join("notes.txt");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "tea at four");
}

#[tokio::test]
async fn calls_made_at_once_are_all_answered() {
    let peer = start();
    let (history, turns) = peer.converse("parallel", 5, async |call| (call.arguments.clone(), None)).await;
    assert_eq!(turns, 2);
    assert_eq!(last_text(&history), r#"Both are answered: [{"path": "a.txt"}, {"path": "b.txt"}]"#);
    assert_eq!(history.messages()[1].tool_calls().len(), 2);
}

#[tokio::test]
async fn a_bot_carries_on_after_a_refused_call() {
    let peer = start();
    let (history, turns) = peer
        .converse("refused", 5, async |call| match call.name.as_str() {
            files::WRITE_FILE => {
                let answer = json!({ "ok": false, "refused": true, "reason": "not at night", "rule": "night" });
                (answer.to_string(), Some("refused".to_owned()))
            }
            _ => (json!({ "ok": true, "entries": [] }).to_string(), None),
        })
        .await;
    assert_eq!((last_text(&history), turns), ("Done without it.", 3));
    let said = serde_json::to_string(&history).unwrap();
    assert!(said.contains("That was refused (not at night), so I look instead."), "{said}");
}

#[tokio::test]
async fn a_bot_that_never_stops_is_stopped_by_its_turns() {
    let peer = start();
    let (history, turns) = peer.converse("loop", 6, async |_| ("nothing new".to_owned(), None)).await;
    assert_eq!(turns, 6);
    assert_eq!(history.messages().len(), 1 + 6 * 2);
}

#[tokio::test]
async fn failures_say_whether_anything_had_begun() {
    let peer = start();
    let Err(RunFailure::BotError { message, produced, .. }) = peer.turn("boom").await else { panic!("it fails") };
    assert_eq!((message.as_str(), produced.last_text()), ("model fell over", Some("partial ")));

    let unavailable = peer.turn("unavailable").await.unwrap_err();
    assert_eq!(unavailable.to_string(), "The Bot answered HTTP 503: restarting.");
    assert!(matches!(unavailable, RunFailure::Unreachable { .. }));

    let nowhere = peer.turn("nowhere").await.unwrap_err();
    assert!(matches!(nowhere, RunFailure::Rejected { status: 404, .. }), "{nowhere:?}");

    let history = History::new();
    let input = RunInput { thread_id: "t", run_id: "r", history: &history, tools: &[], state: &json!({}), resume: &[] };
    let empty = peer.client("chat", AguiOptions::default()).run(input).await.unwrap_err();
    assert!(matches!(empty, RunFailure::BotError { .. }), "a server that is told nothing says so: {empty:?}");
}

#[tokio::test]
async fn silence_and_the_deadline_end_a_turn() {
    let peer = start();
    let mut history = History::new();
    history.say("go");
    let input = RunInput { thread_id: "t", run_id: "r", history: &history, tools: &[], state: &json!({}), resume: &[] };
    let options = AguiOptions { stall: Duration::from_secs(1), ..AguiOptions::default() };
    let Err(RunFailure::Silent { sentence, produced }) = peer.client("stuck", options.clone()).run(input).await else {
        panic!("it is stuck")
    };
    assert_eq!((sentence.as_str(), produced.last_text()), ("The Bot was silent for 1s.", Some("wait ")));
    // A Bot that is slow but not silent goes on until the caller hangs up.
    let deadline = tokio::time::timeout(Duration::from_secs(2), peer.client("slow", options).run(input)).await;
    assert!(deadline.is_err(), "{deadline:?}");
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_its_answer_is_a_failure() {
    let mut peer = start();
    let client = peer.client("slow", AguiOptions::default());
    let turn = tokio::spawn(async move {
        let mut history = History::new();
        history.say("go");
        client
            .run(RunInput {
                thread_id: "t",
                run_id: "r",
                history: &history,
                tools: &[],
                state: &json!({}),
                resume: &[],
            })
            .await
    });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    peer.process.kill().unwrap();
    let failure = turn.await.unwrap().unwrap_err();
    assert!(matches!(failure, RunFailure::Broken { .. }), "{failure:?}");
    assert!(failure.to_string().starts_with("The Bot broke off its answer: "), "{failure}");
}
