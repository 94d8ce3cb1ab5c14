//! A PostgreSQL server of a test's own, to be stopped, killed, filled and replaced.

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

/// Runs a command to its end, and fails with what it said.
fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {}\n{said}", done.status);
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// As root; where this is not root, `sudo` must not ask.
fn run_as_root(program: &str, arguments: &[&str]) {
    if is_root() {
        run(program, arguments);
    } else {
        run("sudo", &[&["-n", program], arguments].concat());
    }
}

/// The newest server that Debian's packages hold, else the one on PATH.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let debian = versions.map(|path| path.join("bin")).filter(|bin| bin.join("initdb").exists());
    let number = |bin: &PathBuf| bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
    let on_path = || env::split_paths(&env::var_os("PATH").unwrap()).find(|bin| bin.join("initdb").exists());
    debian.max_by_key(|bin| number(bin).unwrap_or(0_u32)).or_else(on_path).expect("a PostgreSQL server; none is here")
}

/// A small file system. It needs root, or a `sudo` that asks nothing.
pub(super) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(super) fn new(megabytes: u32) -> Self {
        let at = TempDir::with_prefix_in("midwatch-disk.", "/tmp").unwrap();
        let size = format!("size={megabytes}m,mode=777");
        run_as_root("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", at.path().to_str().unwrap()]);
        Self(at)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves room for `free` bytes more.
    pub(super) fn fill(&self, free: usize) {
        let ballast = self.path().join("ballast");
        let mut size = 1 << 22;
        let mut bytes: Vec<u8> = Vec::new();
        while size >= 4_096 {
            bytes.resize(bytes.len() + size, 7);
            if fs::write(&ballast, &bytes).is_err() {
                bytes.truncate(bytes.len() - size);
                size /= 2;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(free));
        fs::write(&ballast, &bytes).unwrap();
    }

    pub(super) fn empty(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run_as_root("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

/// A file and its WAL that nobody can write to, not even who has them open; until it is dropped. It needs root, or a
/// `sudo` that asks nothing.
pub(super) struct Fixed([String; 2]);

impl Fixed {
    pub(super) fn new(file: &str) -> Self {
        let files = [file.to_owned(), format!("{file}-wal")];
        run_as_root("chattr", &["+i", &files[0], &files[1]]);
        Self(files)
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        run_as_root("chattr", &["-i", &self.0[0], &self.0[1]]);
    }
}

pub(super) struct Server {
    bin: PathBuf,
    home: TempDir,
    settings: String,
    port: u16,
    /// Stops the server when this process ends, however it ends.
    keeper: Child,
}

impl Server {
    /// A new, running server with these settings.
    pub(super) fn new(settings: &[&str]) -> Self {
        let server = Self::empty(settings);
        let arguments = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"];
        server.run("initdb", &arguments);
        server.start();
        server
    }

    /// A copy of this running server, set up to follow it; not started.
    pub(super) fn standby(&self) -> Self {
        let standby = Self::empty(&[]);
        let from = format!("--dbname=host=127.0.0.1 port={} user=postgres", self.port);
        let data = format!("--pgdata={}", standby.data());
        standby.owner("pg_basebackup", &[&data, &from, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        standby
    }

    fn empty(settings: &[&str]) -> Self {
        // Under /tmp, whatever TMPDIR says: its owner must reach it, and a socket's path has room for 107 bytes.
        let home = TempDir::with_prefix_in("midwatch-server.", "/tmp").unwrap();
        if is_root() {
            run("chown", &["postgres", home.path().to_str().unwrap()]);
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let mut all =
            format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={}", home.path().display());
        for setting in settings {
            all.push_str(" -c ");
            all.push_str(setting);
        }
        let bin = binaries();
        let (stop, owner) = (bin.join("pg_ctl"), if is_root() { "runuser -u postgres --" } else { "" });
        let stop = format!(
            "read -r _; {owner} '{}' stop --silent --mode=immediate --pgdata='{}/data'",
            stop.display(),
            home.path().display()
        );
        let mut keeper = Command::new("sh");
        keeper.args(["-c", &stop]).current_dir(home.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let keeper = keeper.stderr(Stdio::null()).spawn().unwrap();
        Self { bin, home, settings: all, port, keeper }
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn data(&self) -> String {
        self.home.path().join("data").display().to_string()
    }

    /// Runs one of PostgreSQL's programs, as somebody that it lets run it.
    fn owner(&self, program: &str, arguments: &[&str]) {
        let program = self.bin.join(program).display().to_string();
        tokio::task::block_in_place(|| {
            if is_root() {
                run("runuser", &[&["-u", "postgres", "--", program.as_str()], arguments].concat());
            } else {
                run(&program, arguments);
            }
        });
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let data = format!("--pgdata={}", self.data());
        self.owner(program, &[&[data.as_str()], arguments].concat());
    }

    pub(super) fn start(&self) {
        let log = format!("--log={}/server.log", self.home.path().display());
        self.run("pg_ctl", &["start", "--silent", "--wait", "--timeout=60", &log, "--options", &self.settings]);
    }

    /// `smart`, `fast`, or `immediate`, which is a crash.
    pub(super) fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["stop", "--silent", "--wait", "--mode", mode]);
    }

    pub(super) fn promote(&self) {
        self.run("pg_ctl", &["promote", "--silent", "--wait"]);
    }

    pub(super) fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives a directory to whoever runs the server.
    pub(super) fn give(&self, directory: &Path) {
        if is_root() {
            run("chown", &["postgres", directory.to_str().unwrap()]);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It stops the server, which may be stopped already.
        let _ = self.keeper.wait();
    }
}

/// An address that leads to one server now and to another after a failover, as a proxy or a name does.
pub(super) struct Address {
    port: u16,
    target: Arc<Mutex<String>>,
}

impl Address {
    pub(super) async fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(Mutex::new(server.place()));
        let now = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let place = now.lock().unwrap().clone();
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(place).await {
                        // Either end may cut it.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, target }
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    pub(super) fn lead_to(&self, server: &Server) {
        *self.target.lock().unwrap() = server.place();
    }
}
