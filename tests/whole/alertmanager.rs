//! Debian's Prometheus Alertmanager, sending for real.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    deployment::{Deployment, wait},
    http, payloads,
};

struct Alertmanager {
    process: Child,
    address: String,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Alertmanager {
    /// One that sends every group to `url` after a moment, and again what resolved.
    fn start(deployment: &Deployment, url: &str, secret: &str) -> Self {
        let config = deployment.path("alertmanager.yml");
        let text = format!(
            "route: {{receiver: watch, group_by: [alertname], group_wait: 100ms, group_interval: 1s, repeat_interval: 1h}}\n\
             receivers:\n- name: watch\n  webhook_configs:\n  - url: {url}\n    send_resolved: true\n    \
             http_config: {{authorization: {{credentials: {secret}}}}}\n"
        );
        fs::write(&config, text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let log = fs::File::create(deployment.path("alertmanager.log")).unwrap();
        let process = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", deployment.path("alertmanager").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus-alertmanager: {error}; `make test` installs it"));
        let alertmanager = Self { process, address };
        wait(Duration::from_secs(20), "the Alertmanager to be there", || {
            http::send(&alertmanager.address, "GET", "/-/ready", &[], b"").is_ok_and(|answer| answer.status == 200)
        });
        alertmanager
    }

    /// An alert that fires, or is over.
    fn alert(&self, name: &str, over: bool) {
        let ends = if over { "2026-01-01T00:00:01Z" } else { "2400-01-01T00:00:00Z" };
        let alert = json!([{
            "labels": {"alertname": name, "instance": "db-1", "severity": "page"},
            "annotations": {"summary": "disk \"/\" is full: 1524831183200260097 bytes, \u{1F525}"},
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": ends,
        }]);
        let headers = [("Content-Type", "application/json")];
        let answer = http::send(&self.address, "POST", "/api/v2/alerts", &headers, alert.to_string().as_bytes());
        assert_eq!(answer.unwrap().status, 200);
    }

    fn failed(&self) -> bool {
        let metrics = http::send(&self.address, "GET", "/metrics", &[], b"").unwrap();
        let text = String::from_utf8(metrics.body).unwrap();
        let failed = |line: &str| line.starts_with("alertmanager_notifications_failed_total{integration=\"webhook\"");
        text.lines().any(|line| failed(line) && !line.ends_with(" 0"))
    }
}

// W22: it sends again only after a 5xx, so what comes while the routine is busy is taken and queued.
#[test]
fn what_an_alertmanager_sends_is_taken_while_the_routine_is_busy() {
    let deployment = Deployment::sqlite();
    // Nobody executes runs here: the first one keeps the routine busy.
    let server = deployment.serve_with(&["--roles", "web,clock,projector"]);
    let routine = payloads::routine(&deployment);
    let create = ["trigger", "create", "--name", "alerts", "--routine", &routine, "--preset", "alertmanager"];
    let trigger = deployment.one(&create);
    let (id, secret) = (trigger["id"].as_str().unwrap(), trigger["secret"].as_str().unwrap());
    let url = format!("http://{}{}", server.address, trigger["path"].as_str().unwrap());
    let alertmanager = Alertmanager::start(&deployment, &url, secret);
    let deliveries = |count: usize| {
        let mut rows = Vec::new();
        wait(Duration::from_secs(20), "the alerts to be delivered", || {
            rows = deployment.run(&["trigger", "deliveries", id]);
            rows.len() == count
        });
        rows
    };
    alertmanager.alert("DiskFull", false);
    let sample = deliveries(1).remove(0);
    assert_eq!((&sample["status"], &sample["event_type"]), (&json!("captured"), &json!("firing")));
    deployment.one(&["trigger", "confirm", id]);
    alertmanager.alert("DiskFull", true);
    let resolved = deliveries(2).remove(0);
    assert_eq!(resolved["event_type"], "resolved");
    alertmanager.alert("HostDown", false);
    deliveries(3);
    alertmanager.alert("HostDown", true);
    let rows = deliveries(4);
    wait(Duration::from_secs(20), "all but the first to wait in the queue", || {
        let rows = deployment.run(&["trigger", "deliveries", id]);
        let with = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
        with("started") == 1 && with("queued") == 2 && with("captured") == 1
    });
    let types: Vec<&Value> = rows.iter().map(|row| &row["event_type"]).collect();
    assert_eq!(types, ["resolved", "firing", "resolved", "firing"]);
    assert!(!alertmanager.failed(), "every notification was taken at once");
    deployment.verify();
}
