//! The dashboard as an admin uses it: a real browser against the real binary.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// A running server; it is killed with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn midwatch(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midwatch"));
    command
        .env("XDG_STATE_HOME", directory.join("state"))
        .env("MIDWATCH_DB", format!("sqlite://{}", directory.join("midwatch.db").display()))
        .env_remove("MIDWATCH_KEY")
        .env_remove("MIDWATCH_DEPLOYMENT")
        .current_dir(directory);
    command
}

fn serve(directory: &Path) -> (Server, String) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let log = std::fs::File::create(directory.join("serve.log")).unwrap();
    let child = midwatch(directory)
        .args(["serve", "--listen", &address])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    let server = Server(child.unwrap());
    for _ in 0..300 {
        if healthy(&address).unwrap_or(false) {
            return (server, address);
        }
        thread::sleep(Duration::from_millis(100));
    }
    let log = std::fs::read_to_string(directory.join("serve.log")).unwrap();
    panic!("the server does not serve:\n{log}");
}

fn healthy(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

/// The path of a new one-time sign-in link.
fn link(directory: &Path) -> String {
    let output = midwatch(directory).args(["user", "link"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let (_, rest) = said.split_once("/sign-in/").unwrap_or_else(|| panic!("no link in {said}"));
    let end = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
    format!("/sign-in/{}", &rest[..end])
}

#[test]
fn an_admin_finds_their_way() {
    let directory = TempDir::new().unwrap();
    let (_server, address) = serve(directory.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/dashboard.mjs");
    for needed in ["MIDWATCH_TEST_CHROMIUM", "MIDWATCH_TEST_NODE_MODULES"] {
        assert!(env::var_os(needed).is_some(), "{needed} is not set; run this through scripts/with-services.sh");
    }
    let output = Command::new("node").arg(script).args([&address, &link(directory.path())]).output().unwrap();
    let log = std::fs::read_to_string(directory.path().join("serve.log")).unwrap();
    assert!(
        output.status.success(),
        "{}{}\nthe server's log:\n{log}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
