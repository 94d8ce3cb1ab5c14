//! A sender: posts to the real server, over a socket of its own.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::failure::Failure;

/// An answer is a few hundred bytes and comes within a second; a server that hangs must not hang the demo.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Posts JSON with a bearer secret; the status of the answer.
pub(super) async fn post(to: SocketAddr, path: &str, secret: &str, body: &str) -> Result<u16, Failure> {
    let answered = timeout(PATIENCE, exchange(to, path, secret, body)).await;
    let answer = answered.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
    let answer = answer.map_err(|error| Failure::fault("post", format!("the demo's own server: {error}")))?;
    // `HTTP/1.1 202 Accepted`
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| Failure::fault("post", "the demo's own server did not answer in HTTP"))
}

async fn exchange(to: SocketAddr, path: &str, secret: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
    Ok(answer)
}
