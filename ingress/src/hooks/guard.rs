//! A guard against strangers, for each address and in this process only.
//!
//! It counts what failed, never what was delivered: a sender is not slowed down by its own work. Deployments that need
//! more put it in front of us.

use std::{collections::HashMap, net::IpAddr, sync::Mutex, time::Duration};

/// Failures an address may have at once.
const BURST: f64 = 400.0;
/// Failures an address may have per second in the long run.
const PER_SECOND: f64 = 40.0;
/// Addresses remembered; beyond it all are forgotten, which lets a few more failures through and nothing else.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Guard {
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

impl Guard {
    /// Whether the address may try at the monotonic instant `now`.
    pub(super) fn admits(&self, address: IpAddr, now: Duration) -> bool {
        let buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        buckets.get(&network(address)).is_none_or(|bucket| bucket.filled(now) >= 1.0)
    }

    /// Counts a failure of the address.
    pub(super) fn charge(&self, address: IpAddr, now: Duration) {
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if buckets.len() >= ADDRESSES_MAX {
            buckets.clear();
        }
        let bucket = buckets.entry(network(address)).or_insert(Bucket { tokens: BURST, at: now });
        *bucket = Bucket { tokens: (bucket.filled(now) - 1.0).max(0.0), at: now };
    }
}

impl Bucket {
    fn filled(&self, now: Duration) -> f64 {
        (self.tokens + now.saturating_sub(self.at).as_secs_f64() * PER_SECOND).min(BURST)
    }
}

/// One customer of a provider has 2^64 addresses of version 6: they count as one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_close_the_door_to_their_address_for_a_moment() {
        let guard = Guard::default();
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for _ in 0..400 {
            assert!(guard.admits(one, Duration::ZERO));
            guard.charge(one, Duration::ZERO);
        }
        assert!(!guard.admits(one, Duration::ZERO));
        assert!(guard.admits(other, Duration::ZERO));
        assert!(guard.admits(one, Duration::from_millis(25)));
    }

    #[test]
    fn a_network_of_version_6_is_one_stranger() {
        let (one, same): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::ffff:2".parse().unwrap());
        assert_eq!(network(one), network(same));
        assert_ne!(network(one), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), "192.0.2.1".parse::<IpAddr>().unwrap());
    }
}
