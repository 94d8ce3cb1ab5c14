//! What is kept beside the events.

use super::support::{Backend, new_id};
use crate::{
    Log, Open, blob,
    lease::{self, Lease},
};

pub(super) async fn blobs_come_back_and_are_kept_once(backend: Backend) {
    let log = backend.open().await;
    let large: Vec<u8> = (0..700_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    for bytes in [&large[..], b"", b"x", &large[..256 << 10]] {
        let id = new_id();
        assert_eq!(blob::get(&log, id).await.unwrap(), None);
        blob::put(&log, id, bytes).await.unwrap();
        assert_eq!(blob::get(&log, id).await.unwrap().as_deref(), Some(bytes));
        blob::put(&log, id, bytes).await.unwrap();
        blob::put(&log, id, b"another").await.unwrap_err();
        assert_eq!(blob::get(&log, id).await.unwrap().as_deref(), Some(bytes));
    }
    let id = new_id();
    blob::put(&log, id, &large).await.unwrap();
    let hex = format!("{:032x}", id.as_u128());
    let id_in_sql = if backend.is_sqlite() { format!("x'{hex}'") } else { format!("'{hex}'") };
    backend.sql(&format!("DELETE FROM blob_chunk WHERE blob = {id_in_sql} AND n = 1")).await.unwrap();
    blob::get(&log, id).await.unwrap_err();
    blob::expire(&log, id).await.unwrap();
    assert_eq!(blob::get(&log, id).await.unwrap(), None);

    // Once more, or where there never was one, is no fault; and another one stays.
    let (stays, never) = (new_id(), new_id());
    blob::put(&log, stays, b"x").await.unwrap();
    for id in [id, never] {
        blob::expire(&log, id).await.unwrap();
    }
    // That it was there is still known.
    blob::put(&log, id, b"another").await.unwrap_err();
    assert_eq!(blob::get(&log, never).await.unwrap(), None);

    let reader = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    blob::put(&reader, new_id(), b"x").await.unwrap_err();
    blob::expire(&reader, stays).await.unwrap_err();
    assert_eq!(blob::get(&log, stays).await.unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(log.head().await.unwrap(), 0);
}

pub(super) async fn leases_are_renewed_by_the_newest_take_only(backend: Backend) {
    let log = backend.open().await;
    let reader = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    let (run, other) = (new_id(), new_id());
    assert_eq!(lease::read_all(&reader).await.unwrap(), []);
    assert!(lease::beat(&log, run, 1, 1).await.unwrap());
    assert!(lease::beat(&log, run, 1, 2).await.unwrap());
    assert!(lease::beat(&log, other, 7, 1).await.unwrap());
    assert!(lease::beat(&log, run, 2, 1).await.unwrap(), "a newer take starts anew");
    assert!(!lease::beat(&log, run, 1, 3).await.unwrap(), "an older take renews nothing");
    let held = Lease { run, take: 2, beat: 1 };
    assert_eq!(lease::read(&reader, &[run]).await.unwrap(), [held]);
    assert_eq!(lease::read_all(&reader).await.unwrap(), [held, Lease { run: other, take: 7, beat: 1 }]);
    lease::give_up(&log, &[(run, 1)]).await.unwrap();
    assert_eq!(lease::read(&log, &[run]).await.unwrap(), [held], "an older take gives up nothing");
    lease::give_up(&log, &[(run, 2)]).await.unwrap();
    assert_eq!(lease::read(&log, &[run, other]).await.unwrap().len(), 1);
    lease::beat(&reader, run, 3, 1).await.unwrap_err();
    assert_eq!(log.head().await.unwrap(), 0);
}
