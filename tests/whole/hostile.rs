//! Strangers at a real server: whatever they do, its memory stays under a stated bound, and a sender is answered meanwhile.
//!
//! The quick ones run with every test; `make hostile` runs the long ones (`ignored` here) and prints the memory of each.
#![expect(clippy::disallowed_methods, reason = "a test measures in real time what real processes do")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    deployment::{Deployment, Server},
    payloads,
};

/// The most resident memory that a server may ever have used while strangers did what they could, in KiB.
const RESIDENT_KIB_MAX: u64 = 192 << 10;
/// How long a good sender may wait for its answer meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

struct Besieged {
    deployment: Deployment,
    server: Server,
    trigger: String,
    path: String,
    authorization: String,
    sent: u64,
}

impl Besieged {
    fn new() -> Self {
        Self::on(Deployment::sqlite(), "web,projector,clock,runner")
    }

    fn on(deployment: Deployment, roles: &str) -> Self {
        let server = deployment.serve_with(&["--roles", roles]);
        let routine = payloads::routine(&deployment);
        let trigger = deployment.one(&["trigger", "create", "--name", "door", "--routine", &routine]);
        let text = |name: &str| trigger[name].as_str().unwrap().to_owned();
        let authorization = format!("Bearer {}", text("secret"));
        let mut here = Self { trigger: text("id"), path: text("path"), authorization, deployment, server, sent: 0 };
        here.a_sender_is_answered("before anything");
        here
    }

    /// A good sender is answered, and soon.
    fn a_sender_is_answered(&mut self, during: &str) {
        self.sent += 1;
        let since = Instant::now();
        let id = self.sent.to_string();
        let headers = [("Authorization", self.authorization.as_str()), ("X-Delivery-Id", &id)];
        let answer = self.server.post(&self.path, &headers, id.as_bytes());
        let answer = answer.unwrap_or_else(|error| panic!("{during}: {error}"));
        assert_eq!(answer.status, 202, "{during}");
        assert!(since.elapsed() < PATIENCE, "{during}: {:?}", since.elapsed());
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes and gives all that comes back until the server closes, or says nothing for a while.
    fn say(&self, bytes: &[u8]) -> String {
        self.heard(bytes, Duration::from_secs(2))
    }

    /// As [`Self::say`], of what has an answer, for which a busy server may take its time.
    fn answer(&self, bytes: &[u8]) -> String {
        self.heard(bytes, Duration::from_secs(20))
    }

    fn heard(&self, bytes: &[u8], patience: Duration) -> String {
        let mut stream = self.connect();
        // The server may have answered and closed before it was all sent.
        let _ = stream.write_all(bytes);
        stream.set_read_timeout(Some(patience)).unwrap();
        let mut answer = vec![0; 64 << 10];
        let began = stream.read(&mut answer).unwrap_or(0);
        answer.truncate(began);
        // What follows the beginning of an answer is there soon.
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A POST's header, with the secret, up to where more lines go.
    fn head(&self) -> String {
        format!("POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\n", self.path, self.authorization)
    }

    /// What the server has used of the processor, to a hundredth of a second.
    fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server.pid())).unwrap();
        // The name may hold anything; user and system time are the twelfth and thirteenth after it.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
    }

    fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// What was delivered is there once, nothing else is, and the memory stayed under its bound.
    fn stood(mut self, what: &str) {
        self.a_sender_is_answered(what);
        let peak = self.peak_kib();
        eprintln!("{what}: at most {} MiB", peak >> 10);
        assert!(peak < RESIDENT_KIB_MAX, "{what}: {peak} KiB");
        let rows = self.deployment.run(&["trigger", "deliveries", &self.trigger]);
        assert_eq!(rows.len() as u64, self.sent, "{what}");
        self.deployment.verify();
    }
}

// Every way in which two readers of one connection may see two different requests is one error for us, and ends the
// connection: nothing that follows is ever read as a request.
#[test]
fn what_two_servers_could_read_differently_is_refused_and_closed() {
    let mut besieged = Besieged::new();
    let hidden = "GET /health HTTP/1.1\r\nHost: hidden\r\n\r\n".to_owned();
    let chunked = "Transfer-Encoding: chunked\r\n";
    let shapes: &[(&str, String)] = &[
        ("two lengths", format!("Content-Length: 0\r\nContent-Length: 44\r\n\r\n{hidden}")),
        ("a list of lengths", format!("Content-Length: 0, 44\r\n\r\n{hidden}")),
        ("a signed length", format!("Content-Length: +4\r\n\r\nabcd{hidden}")),
        ("a negative length", format!("Content-Length: -1\r\n\r\n{hidden}")),
        ("a length in hex", format!("Content-Length: 0x4\r\n\r\nabcd{hidden}")),
        ("an endless length", format!("Content-Length: 99999999999999999999999\r\n\r\n{hidden}")),
        ("an unknown coding", format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}")),
        ("chunked before the last coding", format!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}")),
        ("chunked, quoted", format!("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n{hidden}")),
        ("a space before the colon", format!("Content-Length : 44\r\n\r\n{hidden}")),
        ("a folded line", format!("X-A: b\r\n Content-Length: 44\r\n\r\n{hidden}")),
        ("a folded coding", format!("Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{hidden}")),
        ("a bare CR in a header", format!("X-A: b\rContent-Length: 44\r\n\r\n{hidden}")),
        ("a NUL in a header", format!("X-A: b\0c\r\n\r\n{hidden}")),
        ("a header without a name", format!(": b\r\n\r\n{hidden}")),
        ("a chunk size with a sign", format!("{chunked}\r\n+5\r\nabcde\r\n0\r\n\r\n{hidden}")),
        ("a chunk size with 0x", format!("{chunked}\r\n0x5\r\nabcde\r\n0\r\n\r\n{hidden}")),
        ("an empty chunk size", format!("{chunked}\r\n\r\nabcde\r\n0\r\n\r\n{hidden}")),
        ("a chunk size that overflows", format!("{chunked}\r\nffffffffffffffff5\r\nabcde\r\n0\r\n\r\n{hidden}")),
        ("a chunk longer than its size", format!("{chunked}\r\n3\r\nabcde\r\n0\r\n\r\n{hidden}")),
        ("a chunk ended by LF alone", format!("{chunked}\r\n5\nabcde\n0\n\n{hidden}")),
        ("an endless chunk extension", format!("{chunked}\r\n5;{}\r\nabcde\r\n0\r\n\r\n{hidden}", "x".repeat(70_000))),
        ("an endless trailer", format!("{chunked}\r\n0\r\n{}\r\n{hidden}", "x: y\r\n".repeat(20_000))),
    ];
    for (what, rest) in shapes {
        let answer = besieged.say(format!("{}{rest}", besieged.head()).as_bytes());
        assert!(!answer.contains("\"ok\":true"), "{what}: what was hidden is answered: {answer}");
        assert!(!answer.contains(" 202 "), "{what}: it was taken in: {answer}");
        assert!(!answer.contains(" 5"), "{what}: {answer}");
    }
    // Of a length and chunks the chunks count (RFC 9112, 6.3), and the connection ends.
    for lines in [format!("Content-Length: 5\r\n{chunked}"), format!("{chunked}Content-Length: 5\r\n")] {
        let answer = besieged.say(format!("{}{lines}\r\n0\r\n\r\n{hidden}", besieged.head()).as_bytes());
        assert!(answer.contains("connection: close") && !answer.contains("\"ok\":true"), "{lines}: {answer}");
    }
    besieged.sent += 1;
    // As plain HTTP/1.1 allows them: a body that looks like a request is a body.
    let body = &hidden;
    let answer = besieged.answer(format!("{}Content-Length: {}\r\n\r\n{body}", besieged.head(), body.len()).as_bytes());
    assert!(answer.contains(" 202 ") && !answer.contains("\"ok\":true"), "{answer}");
    besieged.sent += 1;
    // Preambles of other protocols, and what is none.
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"POST /hooks/x HTTP/9.9\r\n\r\n",
        b"POST http://other.example/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /hooks/../health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET\t/health\tHTTP/1.1\r\n\r\n",
    ] {
        let answer = besieged.say(bytes);
        assert!(!answer.contains("\"ok\":true"), "{bytes:?}: {answer}");
    }
    besieged.stood("request smuggling");
}

// Nothing is opened that could be reset a hundred thousand times: HTTP/2 is not spoken, by no road.
#[test]
fn http_2_is_not_offered() {
    let mut besieged = Besieged::new();
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags];
        [&head[..], &stream.to_be_bytes(), payload].concat()
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, b""));
    for stream in (1..20_000).step_by(2) {
        // GET / over http, and at once: never mind.
        bytes.extend(frame(1, 5, stream, b"\x82\x84\x86"));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    let before = besieged.processor_time();
    for _ in 0..20 {
        let answer = besieged.say(&bytes);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 505"),
            "{answer}"
        );
    }
    let cost = besieged.processor_time() - before;
    assert!(cost < Duration::from_secs(1), "{cost:?}");
    let upgrade = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                   HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n";
    let answer = besieged.say(upgrade.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    besieged.a_sender_is_answered("HTTP/2");
    besieged.stood("HTTP/2 rapid reset");
}

#[test]
fn floods_of_headers_cost_the_limit() {
    let besieged = Besieged::new();
    let many: String = (0..5_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let long = format!("x-long: {}\r\n", "x".repeat(1 << 20));
    let name = format!("{}: x\r\n", "x".repeat(200_000));
    for lines in [many, long, name] {
        let answer = besieged.say(format!("{}{lines}Content-Length: 1\r\n\r\nx", besieged.head()).as_bytes());
        assert!(!answer.contains(" 202 ") && !answer.contains(" 5"), "{answer}");
    }
    let path = format!("POST /hooks/{} HTTP/1.1\r\nHost: x\r\n\r\n", "A".repeat(300_000));
    assert!(!besieged.say(path.as_bytes()).contains(" 5"));
    // 200 at once that never end their headers, each as long as it may be.
    let mut streams: Vec<_> = (0..200).map(|_| besieged.connect()).collect();
    let part = format!("{}x: {}", besieged.head(), "x".repeat(60_000));
    for stream in &mut streams {
        stream.write_all(part.as_bytes()).unwrap();
    }
    besieged.stood("header floods");
}

#[test]
fn too_much_by_every_road_costs_the_cap() {
    let mut besieged = Besieged::new();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\n", besieged.path);
    for authentic in [false, true] {
        let head = if authentic { besieged.head() } else { head.clone() };
        // Declared too long, and sent all the same.
        let declared = format!("{head}Content-Length: 40000000\r\n\r\n{}", "x".repeat(4_000_000));
        let answer = besieged.answer(declared.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        // In chunks, without a length.
        let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(64));
        let answer = besieged.answer(chunks.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        // One byte a chunk: each costs as much as a long one.
        let bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", "1\r\nx\r\n".repeat(1_000_001));
        let before = besieged.processor_time();
        let answer = besieged.answer(bytes.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        let cost = besieged.processor_time() - before;
        assert!(cost < Duration::from_millis(500), "{cost:?}");
        besieged.a_sender_is_answered("oversize");
    }
    // 50 at once, each up to the cap of a megabyte, then silence: what they hold is bounded by it.
    let mut streams: Vec<_> = (0..50).map(|_| besieged.connect()).collect();
    for stream in &mut streams {
        let _ = stream.write_all(format!("{head}Content-Length: 1000000\r\n\r\n").as_bytes());
        let _ = stream.write_all("x".repeat(900_000).as_bytes());
    }
    besieged.a_sender_is_answered("50 half megabytes");
    drop(streams);
    besieged.stood("oversize");
}

#[test]
fn unusual_ids_are_ids_or_refused() {
    let mut besieged = Besieged::new();
    let (path, authorization) = (besieged.path.clone(), besieged.authorization.clone());
    let ids: Vec<Vec<u8>> = vec![
        b"0".to_vec(),
        b"-1".to_vec(),
        b"' OR 1=1; DROP TABLE events; --".to_vec(),
        b"../../etc/passwd".to_vec(),
        b"%00%0d%0a".to_vec(),
        b"${jndi:ldap://x/a}".to_vec(),
        "\u{202E}evil\u{1F525}".as_bytes().to_vec(),
        b"\xff\xfe\x80".to_vec(),
        vec![b'i'; 40_000],
        b"a, b".to_vec(),
    ];
    for id in &ids {
        let post = |id: &[u8], body: &str| {
            let mut bytes =
                format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n").into_bytes();
            bytes.extend(b"X-Delivery-Id: ");
            bytes.extend(id);
            bytes.extend(format!("\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).bytes());
            besieged.answer(&bytes)
        };
        let what = String::from_utf8_lossy(&id[..id.len().min(40)]).into_owned();
        let first = post(id, "{}");
        assert!(first.starts_with("HTTP/1.1 202"), "{what}: {first}");
        let again = post(id, "{}");
        assert!(again.starts_with("HTTP/1.1 200") && again.contains("\"duplicate\":true"), "{what}: {again}");
    }
    besieged.sent += ids.len() as u64;
    besieged.stood("unusual ids");
}

/// Opens `count` connections that say what `first` is and then, now and again, `more`, for `time`; a good sender is
/// answered all the while.
fn siege(count: usize, first: &str, more: &str, time: Duration, what: &str) {
    let mut besieged = Besieged::new();
    let over = Arc::new(AtomicBool::new(false));
    let opened = Arc::new(AtomicUsize::new(0));
    let attackers: Vec<_> = (0..4)
        .map(|_| {
            let (address, over, opened) = (besieged.server.address.clone(), Arc::clone(&over), Arc::clone(&opened));
            let (first, more) = (first.replace("{path}", &besieged.path), more.to_owned());
            thread::spawn(move || {
                let mut streams: Vec<TcpStream> = Vec::new();
                while !over.load(SeqCst) {
                    // Who was cut comes back.
                    streams.retain_mut(|stream| stream.write_all(more.as_bytes()).is_ok());
                    while streams.len() < count / 4 && !over.load(SeqCst) {
                        let Ok(mut stream) = TcpStream::connect(&address) else { break };
                        let _ = stream.set_nonblocking(true);
                        let _ = stream.write_all(first.as_bytes());
                        streams.push(stream);
                        opened.fetch_add(1, SeqCst);
                    }
                    thread::sleep(Duration::from_millis(200));
                }
            })
        })
        .collect();
    let since = Instant::now();
    let mut worst = Duration::ZERO;
    // On a busy machine it takes the besiegers longer to be many.
    while since.elapsed() < time || (opened.load(SeqCst) < count && since.elapsed() < Duration::from_secs(60)) {
        thread::sleep(Duration::from_millis(100));
        let asked = Instant::now();
        besieged.a_sender_is_answered(what);
        worst = worst.max(asked.elapsed());
    }
    over.store(true, SeqCst);
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    // They went away in the middle of what they said, which counts against the address that they share with the sender.
    thread::sleep(Duration::from_secs(1));
    let opened = opened.load(SeqCst);
    eprintln!("{what}: {opened} connections, a good sender waited {worst:?} at the most");
    assert!(opened >= count, "{opened}");
    besieged.stood(what);
}

const HEADER: &str = "POST {path} HTTP/1.1\r\nHost: x\r\n";

#[test]
fn a_slow_siege_is_stood() {
    siege(1_500, HEADER, "x-a: b\r\n", Duration::from_secs(3), "1,500 headers that never end");
}

#[test]
fn a_slow_siege_of_bodies_is_stood() {
    let first = format!("{HEADER}Content-Length: 999999\r\n\r\n{{");
    siege(1_500, &first, "x", Duration::from_secs(6), "1,500 bodies that never end");
}

#[test]
#[ignore = "long: make hostile"]
fn ten_thousand_headers_that_never_end() {
    siege(10_000, HEADER, "x-a: b\r\n", Duration::from_secs(30), "10,000 headers that never end");
}

#[test]
#[ignore = "long: make hostile"]
fn ten_thousand_connections_that_say_nothing() {
    siege(10_000, "", "", Duration::from_secs(30), "10,000 silent connections");
}

#[test]
#[ignore = "long: make hostile"]
fn thousands_of_bodies_that_never_end() {
    let first = format!("{HEADER}Content-Length: 999999\r\n\r\n{{");
    siege(4_000, &first, "x", Duration::from_secs(30), "4,000 bodies that never end");
}

// A stranger's signature costs no look at the database, but for one a second for the endpoint and one for the halt.
#[test]
fn rejected_signatures_cost_no_round_trip() {
    let mut besieged = Besieged::on(Deployment::postgres("hostile"), "web");
    besieged.a_sender_is_answered("before");
    // PostgreSQL's idle connections report what they did only after ten seconds; what led up to this does not count.
    thread::sleep(Duration::from_secs(11));
    let before = besieged.deployment.transactions();
    let since = Instant::now();
    let mut refused = 0_u32;
    while since.elapsed() < Duration::from_secs(2) {
        let headers = [("Authorization", "Bearer mw_of-somebody-else")];
        let status = besieged.server.post(&besieged.path, &headers, b"{}").unwrap().status;
        refused += u32::from(status == 401);
        assert!(status == 401 || status == 429, "{status}");
        if status == 429 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    thread::sleep(Duration::from_millis(1_200));
    let seconds = since.elapsed().as_secs_f64();
    let cost = besieged.deployment.transactions() - before;
    eprintln!("{refused} refused in {seconds:.1} s cost {cost} transactions, the look at the statistics among them");
    assert!(refused > 200, "{refused}");
    // A look at the trigger and one at the halt each second, what a server does at rest, and no more.
    assert!((cost as f64) < 12.0 * seconds, "{cost} for {refused}");
    besieged.stood("rejected signatures");
}
