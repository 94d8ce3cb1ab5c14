//! Asking a person, through the door: on real ledgers, from two processes.

use midwatch_commands::run::Answerer;
use midwatch_engine::{EngineError, approvals::Answer as Given, projector};
use midwatch_events::{
    id::UserId,
    run::{ApprovalAnswer, ApprovalAnswered, ApprovalRequested, CallResult},
};
use midwatch_projections::run_approvals::{ApprovalRow, Approvals};

use super::*;
use crate::decide::Whose;

/// A boundary that asks about every write; `more` are further members of the rule.
fn asking(more: &str) -> String {
    format!(
        r#"{{"rules":[{{"id":"ask","name":"Ask","verdict":"ask","when":"intent == \"write_file\""{more}}},
           {{"id":"rest","name":"Rest","verdict":"allow","when":"true"}}]}}"#
    )
}

const WAIT: &str = r#","unattended":"wait""#;

async fn publish(process: &Process, document: &str) {
    process.engine.publish_boundary(document, "", None, &me(), None).await.unwrap();
}

fn write(path: &str, contents: &str) -> Call {
    let arguments = Ok(json!({"path": path, "contents": contents}));
    Call { tool: WRITE.to_owned(), arguments, step: None, whose: Whose::Ours }
}

/// Makes a call in a task of its own.
fn call(process: &Arc<Process>, job: &Job, call: Call) -> tokio::task::JoinHandle<Result<Answer, Stop>> {
    let (process, job) = (Arc::clone(process), job.clone());
    tokio::spawn(async move { process.gateway.call(&job, call).await })
}

/// The approvals that are open, once there are `count`.
async fn open(engine: &Engine, count: usize) -> Vec<ApprovalRow> {
    for _ in 0..200 {
        projector::catch_up(engine).await.unwrap();
        let order = midwatch_log::views::Order { column: "asked_at", descending: false };
        let rows = projector::page::<Approvals>(engine, Vec::new(), order, 100, None).await.unwrap();
        let open: Vec<_> = rows.into_iter().map(|(row, _)| row).filter(|row| row.answer.is_none()).collect();
        if open.len() == count {
            return open;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("there were never {count} open approvals");
}

fn admin() -> Answerer {
    Answerer { user: Some(UserId::new(World::system().uuid())), admin: true }
}

async fn say(engine: &Engine, row: &ApprovalRow, yes: bool) -> Result<(), EngineError> {
    let answer = Given { approval: row.id, digest: row.digest, yes, by: admin() };
    let person = Origin::of(Actor::User(admin().user.unwrap()));
    engine.answer_approval(answer, &person, None).await.map(|_| ())
}

async fn asked(engine: &Engine) -> Vec<ApprovalRequested> {
    let asked = all(engine).await.into_iter().filter_map(|event| match event {
        AnyEvent::Run(RunEvent::ApprovalRequested(asked), _) => Some(asked),
        _ => None,
    });
    asked.collect()
}

async fn answered(engine: &Engine) -> Vec<(String, ApprovalAnswered)> {
    let (events, _) = engine.log().read_all(0, 10_000, &Filter::default()).await.unwrap();
    let answered = events.iter().filter_map(|event| match AnyEvent::decode(event).unwrap() {
        AnyEvent::Run(RunEvent::ApprovalAnswered(answered), _) => Some((event.actor.clone(), answered)),
        _ => None,
    });
    answered.collect()
}

fn contents(home: &TempDir, bot: BotId, path: &str) -> Option<String> {
    std::fs::read_to_string(home.path().join("workspaces").join(bot.to_string()).join(path)).ok()
}

// G19, G20: what was approved is what acts, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_yes_lets_through_exactly_what_was_shown_and_once() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let process = Arc::new(Process::new(&url, &home, World::system()).await);
        let engine = &process.engine;
        publish(&process, &asking(WAIT)).await;
        let bot = bot(engine).await;
        let job = process.job(bot).await;

        let waits = call(&process, &job, write("a.txt", "reviewed"));
        let [row] = open(engine, 1).await.try_into().unwrap();
        assert_eq!((row.tool.as_str(), row.rule.as_str(), row.boundary), (WRITE, "ask", 2), "{name}");
        assert_eq!(row.fingerprint.as_deref(), Some("computer_write_file a.txt"));
        assert_eq!(contents(&home, bot, "a.txt"), None);
        say(engine, &row, true).await.unwrap();
        assert_eq!(waits.await.unwrap().unwrap().kind, AnswerKind::Done, "{name}");
        assert_eq!(contents(&home, bot, "a.txt").as_deref(), Some("reviewed"));

        // Other contents, another path, and the very same once more: each is asked about.
        for (n, (path, text)) in [("a.txt", "changed"), ("b.txt", "reviewed"), ("a.txt", "reviewed")].iter().enumerate()
        {
            let waits = call(&process, &job, write(path, text));
            let [row] = open(engine, 1).await.try_into().unwrap();
            assert_eq!(asked(engine).await.len(), n + 2, "{name}");
            say(engine, &row, false).await.unwrap();
            let answer = waits.await.unwrap().unwrap();
            assert_eq!(answer.kind, AnswerKind::Refused);
            assert_eq!(answer.sentence.as_deref(), Some("a person was asked and said no"));
        }
        assert_eq!(contents(&home, bot, "b.txt"), None);
        let decided = decisions(engine).await;
        let first: Vec<_> = decided.iter().take(2).map(|one| (one.ordinal, one.decision, one.repeat_count)).collect();
        assert_eq!(first, [(1, DecisionKind::Asked, 1), (1, DecisionKind::Allowed, 1)], "{name}");
        assert_eq!(decided.last().unwrap().refusal, Some(RefusalCause::Declined));
        // A no stays a no: it is not asked again in this run.
        let again = process.gateway.call(&job, write("a.txt", "changed")).await.unwrap();
        assert_eq!(again.kind, AnswerKind::Refused);
        assert_eq!(asked(engine).await.len(), 4, "{name}");
        assert!(matches!(say(engine, &row, false).await, Err(EngineError::Refused(_))));
    }
}

// G23.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_read_one_approval_act_once() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let processes = [
            Arc::new(Process::new(&url, &home, World::system()).await),
            Arc::new(Process::new(&url, &home, World::system()).await),
        ];
        let engine = &processes[0].engine;
        publish(&processes[0], &asking(WAIT)).await;
        let bot = bot(engine).await;
        let job = processes[0].job(bot).await;
        let other = Job { engine: processes[1].engine.clone(), ..job.clone() };
        let calls = [call(&processes[0], &job, write("a", "x")), call(&processes[1], &other, write("a", "x"))];
        let [row] = open(engine, 1).await.try_into().unwrap();
        // Both wait for the one card.
        for _ in 0..200 {
            if decisions(engine).await.len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        say(engine, &row, true).await.unwrap();
        // The second is asked about by itself, as the first has spent the answer.
        let [second] = open(engine, 1).await.try_into().unwrap();
        assert_ne!(second.id, row.id);
        say(engine, &second, false).await.unwrap();
        let mut kinds = Vec::new();
        for call in calls {
            kinds.push(call.await.unwrap().unwrap().kind);
        }
        kinds.sort_by_key(|kind| *kind == AnswerKind::Refused);
        assert_eq!(kinds, [AnswerKind::Done, AnswerKind::Refused], "{name}");
        let acted = all(engine).await.into_iter().filter(|event| {
            matches!(event, AnyEvent::Run(RunEvent::ToolCallEnded { result: CallResult::Finished, .. }, _))
        });
        assert_eq!(acted.count(), 1, "{name}");
    }
}

// G22.
#[tokio::test(flavor = "multi_thread")]
async fn another_boundary_withdraws_the_question_and_judges_the_call_by_itself() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Arc::new(Process::new(&url, &home, World::system()).await);
    let engine = &process.engine;
    publish(&process, &asking(WAIT)).await;
    let job = process.job(bot(engine).await).await;
    let waits = call(&process, &job, write("a.txt", "x"));
    let [first] = open(engine, 1).await.try_into().unwrap();
    publish(&process, &asking(r#","unattended":"wait","note":"changed""#)).await;
    // Nobody can say yes to what the older one asked.
    assert!(matches!(say(engine, &first, true).await, Err(EngineError::Refused(_))));
    let second = loop {
        let [row] = open(engine, 1).await.try_into().unwrap();
        if row.id != first.id {
            break row;
        }
    };
    assert_eq!((second.boundary, second.call), (3, first.call));
    assert_ne!(second.digest, first.digest);
    let withdrawn = answered(engine).await;
    assert_eq!((withdrawn[0].1.approval, withdrawn[0].1.answer), (first.id, ApprovalAnswer::Withdrawn));
    publish(&process, r#"{"rules":[{"id":"all","name":"All","verdict":"allow","when":"true"}]}"#).await;
    assert_eq!(waits.await.unwrap().unwrap().kind, AnswerKind::Done);
    let decided = decisions(engine).await;
    let seen: Vec<_> = decided.iter().map(|one| (one.ordinal, one.boundary, one.decision)).collect();
    assert_eq!(seen, [(1, 2, DecisionKind::Asked), (1, 3, DecisionKind::Asked), (1, 4, DecisionKind::Allowed)]);
}

// G26.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_no_reason_to_wait_unless_the_rule_says_so() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Arc::new(Process::new(&url, &home, World::system()).await);
    publish(&process, &asking("")).await;
    let job = process.job(bot(&process.engine).await).await;
    for _ in 0..50 {
        let answer = process.gateway.call(&job, write("a.txt", "x")).await.unwrap();
        assert_eq!(answer.kind, AnswerKind::Refused);
    }
    let decided = decisions(&process.engine).await;
    assert!(decided.iter().all(|one| one.refusal == Some(RefusalCause::AskUnattended)));
    assert!(asked(&process.engine).await.is_empty());
}

// G28.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_answers_is_expired_by_the_clock() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let mut process = Process::new(&url, &home, World::system()).await;
    let options = GatewayOptions::files(home.path().join("workspaces"));
    process.gateway = Gateway::asking(options, 1).unwrap();
    let process = Arc::new(process);
    publish(&process, &asking(WAIT)).await;
    let job = process.job(bot(&process.engine).await).await;
    let answer = process.gateway.call(&job, write("a.txt", "x")).await.unwrap();
    assert_eq!(answer.sentence.as_deref(), Some("a person was asked and nobody answered in time"));
    let [(actor, expired)] = answered(&process.engine).await.try_into().unwrap();
    assert_eq!((actor.as_str(), expired.answer), ("clock", ApprovalAnswer::Expired));
    let last = decisions(&process.engine).await.pop().unwrap();
    assert_eq!((last.decision, last.refusal), (DecisionKind::Refused, Some(RefusalCause::Expired)));
}

/// The clock role lets expire what nobody waits for any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_whose_caller_went_away_expires_all_the_same() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let mut process = Process::new(&url, &home, World::system()).await;
    let options = GatewayOptions::files(home.path().join("workspaces"));
    process.gateway = Gateway::asking(options, 1).unwrap();
    let process = Arc::new(process);
    publish(&process, &asking(WAIT)).await;
    let job = process.job(bot(&process.engine).await).await;
    let gone = call(&process, &job, write("a.txt", "x"));
    open(&process.engine, 1).await;
    gone.abort();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    midwatch_engine::clock::sweep(&process.engine).await.unwrap();
    let [(actor, expired)] = answered(&process.engine).await.try_into().unwrap();
    assert_eq!((actor.as_str(), expired.answer), ("clock", ApprovalAnswer::Expired));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_run_withdraws_the_question_and_nothing_acts() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Arc::new(Process::new(&url, &home, World::system()).await);
    let engine = &process.engine;
    publish(&process, &asking(WAIT)).await;
    let bot = bot(engine).await;
    let job = process.job(bot).await;
    let waits = call(&process, &job, write("a.txt", "x"));
    let [row] = open(engine, 1).await.try_into().unwrap();
    engine.cancel_run(job.run, &me()).await.unwrap();
    assert!(matches!(waits.await.unwrap(), Err(Stop::Lost(_))));
    // A late yes does nothing.
    assert!(matches!(say(engine, &row, true).await, Err(EngineError::Refused(_))));
    open(engine, 0).await;
    let [(_, withdrawn)] = answered(engine).await.try_into().unwrap();
    assert_eq!(withdrawn.answer, ApprovalAnswer::Withdrawn);
    assert_eq!(contents(&home, bot, "a.txt"), None);
}

/// A dry run asks nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_lets_through_and_records_what_it_would_have_said() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Arc::new(Process::new(&url, &home, World::system()).await);
    publish(&process, &asking("").replacen('{', r#"{"mode":"dry_run","#, 1)).await;
    let job = process.job(bot(&process.engine).await).await;
    assert_eq!(process.call(&job, WRITE).await.unwrap().kind, AnswerKind::Done);
    let [decided] = decisions(&process.engine).await.try_into().unwrap();
    assert_eq!((decided.verdict, decided.enforced), (midwatch_events::run::Verdict::Ask, false));
    assert_eq!((decided.decision, decided.approval), (DecisionKind::Allowed, None));
}
