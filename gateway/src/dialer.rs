//! Where a request of ours may go. An address that somebody typed, or that a Bot gave, must not become a way into the
//! machine or network it is sent from.
//!
//! A name is resolved once, every address is judged, and the address that was judged is the one that is dialled: a name
//! that answers differently the second time gains nothing. Redirects are not followed, and proxies are not asked.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

/// What this deployment lets its own requests reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses alone.
    #[default]
    Public,
    /// The machine itself and its networks too. What clouds tell their machines about themselves stays out of reach.
    Private,
}

/// Why an address is not dialled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barred {
    /// It is no web address, or one that says too much.
    #[error("{0}")]
    Address(String),
    /// It leads into the machine, its networks, or nowhere.
    #[error("{0} is not a public address, and this deployment reaches no others")]
    Private(IpAddr),
    /// A cloud answers there with the machine's own credentials, or nobody ever does.
    #[error("{0} is never asked")]
    Never(IpAddr),
}

/// What clouds tell their machines about themselves, on addresses of their own.
const METADATA: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Judges one address. An address of version 4 inside one of version 6 is judged as itself.
///
/// # Errors
/// [`Barred`].
pub fn judge(address: IpAddr, reach: Reach) -> Result<(), Barred> {
    let meant = meant(address);
    if METADATA.contains(&meant) || METADATA.contains(&address) || nowhere(meant) {
        return Err(Barred::Never(address));
    }
    match reach {
        Reach::Public if private(meant) => Err(Barred::Private(address)),
        Reach::Public | Reach::Private => Ok(()),
    }
}

/// The address of version 4 that one of version 6 stands for: mapped (`::ffff:a.b.c.d`), compatible (`::a.b.c.d`),
/// translated by NAT64 (`64:ff9b::/96`, RFC 6052) or by 6to4 (`2002::/16`).
fn meant(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let parts = v6.segments();
    let last = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => last(high, low),
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0, high, low] => last(high, low),
        [0x2002, high, low, ..] => last(high, low),
        _ => address,
    }
}

fn nowhere(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.octets()[0] >= 240,
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

fn private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            match (a, b, c) {
                // This network, loopback, RFC 1918, shared (RFC 6598), link-local.
                (0 | 10 | 127, ..) | (100, 64..=127, _) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
                // Protocols, documentation, 6to4's relays, benchmarks.
                (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => true,
                _ => false,
            }
        }
        IpAddr::V6(v6) => match v6.segments() {
            // Unspecified and loopback.
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] => true,
            // NAT64 of one's own (RFC 8215), discard, Teredo and other protocols, documentation.
            [0x64, 0xff9b, 1, ..] | [0x100, 0, 0, 0, ..] | [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] => true,
            // Unique local, link-local, site-local.
            [first, ..] => matches!(first & 0xfe00, 0xfc00) || matches!(first & 0xffc0, 0xfe80 | 0xfec0),
        },
    }
}

/// A web address that may be written down: `http` or `https`, a host, and no name or password of anybody.
///
/// # Errors
/// [`Barred`], also for a host that is an address and may not be reached.
pub fn address(text: &str, reach: Reach) -> Result<Url, Barred> {
    let wrong = |sentence: &str| Barred::Address(sentence.to_owned());
    let url = Url::parse(text.trim()).map_err(|_| wrong("that is no web address; write https://…"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("a web address begins with https:// or http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("leave name and password out of the address"));
    }
    let host = url.host_str().ok_or_else(|| wrong("the address has no host"))?;
    // A host that is an address is dialled without asking for its name.
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(literal) = literal.parse::<IpAddr>() {
        judge(literal, reach)?;
    }
    Ok(url)
}

/// Makes requests that stay within reach. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialer {
    client: Client,
    reach: Reach,
}

/// A client whose answers may go on for long, and which stays within reach all the same.
///
/// # Errors
/// There is no TLS to be had.
pub(crate) fn streaming(reach: Reach, patience: Duration) -> Result<Client, reqwest::Error> {
    builder(reach, patience, Arc::new(SystemNames)).build()
}

fn builder(reach: Reach, patience: Duration, names: Arc<dyn Names>) -> reqwest::ClientBuilder {
    Client::builder()
        .dns_resolver(Judging { reach, names })
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(patience)
        .user_agent(concat!("midwatch/", env!("CARGO_PKG_VERSION")))
}

impl Dialer {
    /// A dialer whose requests last at most `patience`.
    ///
    /// # Errors
    /// There is no TLS to be had.
    pub fn new(reach: Reach, patience: Duration) -> Result<Self, reqwest::Error> {
        Self::asking(reach, patience, Arc::new(SystemNames))
    }

    fn asking(reach: Reach, patience: Duration, names: Arc<dyn Names>) -> Result<Self, reqwest::Error> {
        let client = builder(reach, patience, names).timeout(patience).build()?;
        Ok(Self { client, reach })
    }

    /// A POST to an address that may be reached.
    ///
    /// # Errors
    /// [`Barred`]; of a name it is known only when it is resolved, and the request then fails with it.
    pub fn post(&self, text: &str) -> Result<reqwest::RequestBuilder, Barred> {
        Ok(self.client.post(address(text, self.reach)?))
    }

    /// What it reaches.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }
}

/// Who knows the addresses of names.
trait Names: fmt::Debug + Send + Sync {
    fn addresses(&self, name: String) -> Addresses;
}

type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// As the system does it.
#[derive(Debug)]
struct SystemNames;

impl Names for SystemNames {
    fn addresses(&self, name: String) -> Addresses {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

/// Resolves a name once and lets through what may be dialled; one barred address bars the name.
#[derive(Debug)]
struct Judging {
    reach: Reach,
    names: Arc<dyn Names>,
}

impl Resolve for Judging {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, asked) = (self.reach, self.names.addresses(name.as_str().to_owned()));
        Box::pin(async move {
            let found = asked.await?;
            if found.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            for address in &found {
                judge(address.ip(), reach)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// What stood in the way of a request, in one line: the last cause says most, and no address is shown.
#[must_use]
pub fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>()
        && error.is_timeout()
    {
        return "it did not answer in time".to_owned();
    }
    last.to_string()
}

/// A shared one, for whoever makes requests on a Bot's behalf.
pub type Shared = Arc<Dialer>;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn only_public_addresses_are_dialled_unless_the_deployment_says_otherwise() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "2001::1",
            "2001:db8::1",
            "100::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
        ] {
            assert_eq!(judge(ip(text), Reach::Public), Err(Barred::Private(ip(text))), "{text}");
            assert_eq!(judge(ip(text), Reach::Private), Ok(()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2001:4860:4860::8888",
            "2a00::1",
        ] {
            assert_eq!(judge(ip(text), Reach::Public), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_clouds_tell_their_machines_is_never_asked() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "ff02::1",
            "::ffff:224.0.0.1",
        ] {
            for reach in [Reach::Public, Reach::Private] {
                assert_eq!(judge(ip(text), reach), Err(Barred::Never(ip(text))), "{text}");
            }
        }
    }

    #[test]
    fn an_address_is_for_the_web_and_names_nobody() {
        for text in [
            "ftp://example.com",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "example.com",
            "",
            "https://",
            "https://user:word@example.com/",
            "https://user@example.com/",
            "http://127.0.0.1:9/",
            "http://[::1]/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://017700000001/",
            "http://169.254.169.254/latest/",
        ] {
            assert!(address(text, Reach::Public).is_err(), "{text}");
        }
        for text in ["https://example.com/hook?x=1", "http://example.com:8080", "https://1.1.1.1/"] {
            assert!(address(text, Reach::Public).is_ok(), "{text}");
        }
        assert!(address("http://127.0.0.1:9/", Reach::Private).is_ok());
        assert!(address("http://169.254.169.254/", Reach::Private).is_err());
    }

    #[tokio::test]
    async fn a_name_that_leads_into_the_machine_is_not_dialled() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = Dialer::new(Reach::Public, Duration::from_secs(5)).unwrap();
        let url = format!("http://localhost:{port}/");
        let refused = dialer.post(&url).unwrap().body("x").send().await.unwrap_err();
        assert!(cause(&refused).contains("not a public address"), "{}", cause(&refused));
        let accepted = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(accepted.is_err(), "it was dialled all the same");
    }
    /// Names whose owner answers each time as he likes: these addresses, one list after the other, the last for ever.
    #[derive(Debug)]
    struct Rebound(std::sync::Mutex<Vec<Vec<SocketAddr>>>);

    impl Rebound {
        fn to(answers: &[&[SocketAddr]]) -> Arc<Self> {
            Arc::new(Self(std::sync::Mutex::new(answers.iter().map(|answer| answer.to_vec()).collect())))
        }

        fn left(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl Names for Rebound {
        fn addresses(&self, _name: String) -> Addresses {
            let mut answers = self.0.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            Box::pin(async move { Ok(answer) })
        }
    }

    async fn refused(dialer: &Dialer, port: u16) -> String {
        let request = dialer.post(&format!("http://hook.example:{port}/")).unwrap();
        cause(&request.body("x").send().await.unwrap_err())
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_the_second_time_is_judged_the_second_time() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inside = listener.local_addr().unwrap();
        let at = |text: &str| SocketAddr::new(ip(text), inside.port());
        // Public, where nobody answers in time; then, for the next request, the machine itself.
        let names = Rebound::to(&[&[at("192.31.196.1")], &[inside]]);
        let dialer = Dialer::asking(Reach::Public, Duration::from_millis(300), names).unwrap();
        let first = refused(&dialer, inside.port()).await;
        assert!(!first.contains("not a public address"), "{first}");
        let second = refused(&dialer, inside.port()).await;
        assert!(second.contains("127.0.0.1 is not a public address"), "{second}");
        // One of several is enough, wherever it stands, and an address of version 4 in one of version 6 is itself.
        for answer in [[at("1.1.1.1"), inside], [inside, at("1.1.1.1")], [at("1.1.1.1"), at("::ffff:127.0.0.1")]] {
            let dialer = Dialer::asking(Reach::Public, Duration::from_secs(5), Rebound::to(&[&answer])).unwrap();
            let barred = refused(&dialer, inside.port()).await;
            assert!(barred.contains("not a public address"), "{answer:?}: {barred}");
        }
        let accepted = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
        assert!(accepted.is_err(), "it was dialled all the same");
    }

    #[tokio::test]
    async fn the_address_that_was_judged_is_the_one_that_is_dialled() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inside = listener.local_addr().unwrap();
        let meant = SocketAddr::new(ip("169.254.169.254"), inside.port());
        let names = Rebound::to(&[&[inside], &[meant]]);
        let dialer =
            Dialer::asking(Reach::Private, Duration::from_secs(5), Arc::clone(&names) as Arc<dyn Names>).unwrap();
        let request = dialer.post(&format!("http://hook.example:{}/", inside.port())).unwrap().body("x").send();
        let (answer, accepted) = tokio::join!(request, async { drop(listener.accept().await.unwrap()) });
        drop((answer, accepted));
        assert_eq!(names.left(), 1, "it was asked once");
        let again = refused(&dialer, inside.port()).await;
        assert!(again.contains("is never asked"), "{again}");
    }
}
