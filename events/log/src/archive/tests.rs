//! Written, read back, erased, and tampered with in every byte.

use std::fs;

use tempfile::TempDir;

use super::{ArchiveError, Archived, erase, verify, write};
use crate::{
    Append, Expected, Log, Open,
    contract::support::{append, event, key, to, worded},
    testing::{fresh_postgres, fresh_sqlite},
};

async fn fill(log: &Log) {
    for at in 0..4 {
        let mut first = worded("run.opened", &format!("words {at}"));
        first.causation_id = Some(first.event_id);
        first.correlation_id = Some("run-ü".to_owned());
        let entries = vec![to("run-ü", Expected::Any, vec![first, event("run.taken")])];
        log.append(Append {
            keys: vec![key(&format!("{at} x"), "x"), key(&format!("{at} y"), "y z")],
            ..append(entries)
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn segments_verify_on_their_own_and_in_a_row() {
    for (url, _guard) in [fresh_sqlite(), fresh_postgres().await] {
        let log = Log::open(&url, Open::ReadWrite).await.unwrap();
        let directory = TempDir::new().unwrap();
        fill(&log).await;
        assert_eq!(write(&log, directory.path(), 3).await.unwrap().len(), 1);
        let files = write(&log, directory.path(), 8).await.unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(write(&log, directory.path(), 8).await.unwrap().len(), 0);
        let refused = write(&log, directory.path(), 9).await;
        assert!(matches!(refused, Err(ArchiveError::Short { head: 8, upto: 9 })), "{refused:?}");
        let all = verify(directory.path()).unwrap();
        assert_eq!((all.segments, all.positions, all.erased, &all.first_bad), (2, Some((1, 8)), 0, &None));
        let second = verify(&files[0]).unwrap();
        assert_eq!(second, Archived { segments: 1, positions: Some((4, 8)), ..all });
    }
}

#[tokio::test]
async fn an_erasure_leaves_the_chain_as_it_was() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let directory = TempDir::new().unwrap();
    fill(&log).await;
    write(&log, directory.path(), 4).await.unwrap();
    write(&log, directory.path(), 8).await.unwrap();
    let before = verify(directory.path()).unwrap();
    assert_eq!(erase(directory.path(), &[1, 2, 5]).unwrap(), 2);
    assert_eq!(verify(directory.path()).unwrap(), Archived { erased: 2, ..before });
    assert_eq!(erase(directory.path(), &[1, 2, 5, 99]).unwrap(), 0);
    for entry in fs::read_dir(directory.path()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        for words in ["words 0", "words 2"] {
            assert!(!bytes.windows(7).any(|window| window == words.as_bytes()), "{words} can still be read");
        }
    }
}

#[tokio::test]
async fn every_byte_is_held() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let directory = TempDir::new().unwrap();
    fill(&log).await;
    let file = write(&log, directory.path(), 4).await.unwrap().remove(0);
    let good = fs::read(&file).unwrap();
    let holds = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        verify(&file).unwrap().first_bad.is_none()
    };
    assert!(holds(&good));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(!holds(&bad), "byte {at} of {} can be changed", good.len());
        assert!(!holds(&good[..at]), "it can end at byte {at}");
    }
    assert!(!holds(&[good.as_slice(), &[0]].concat()), "something can follow");
    fs::write(&file, &good[..good.len() - 1]).unwrap();
    let refused = write(&log, directory.path(), 8).await;
    assert!(matches!(refused, Err(ArchiveError::Broken { .. })), "nothing is added to what does not hold: {refused:?}");
}

#[tokio::test]
async fn a_segment_that_is_missing_swapped_or_foreign_is_found() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let directory = TempDir::new().unwrap();
    fill(&log).await;
    let mut files = Vec::new();
    for upto in [2, 4, 8] {
        files.extend(write(&log, directory.path(), upto).await.unwrap());
    }
    let bad = || verify(directory.path()).unwrap().first_bad.map(|(_, bad)| (bad.position, bad.error));
    assert_eq!(bad(), None);
    let aside = directory.path().join("aside");
    fs::rename(&files[1], &aside).unwrap();
    assert!(bad().unwrap().1.contains("position 3 is missing"));
    fs::copy(&files[0], &files[1]).unwrap();
    assert!(bad().unwrap().1.contains("its header says"));
    fs::rename(&aside, &files[1]).unwrap();
    // The same positions of another ledger.
    let (other_url, _other_guard) = fresh_sqlite();
    let other = Log::open(&other_url, Open::ReadWrite).await.unwrap();
    fill(&other).await;
    let elsewhere = TempDir::new().unwrap();
    write(&other, elsewhere.path(), 2).await.unwrap();
    let foreign = write(&other, elsewhere.path(), 4).await.unwrap().remove(0);
    assert!(verify(elsewhere.path()).unwrap().first_bad.is_none());
    fs::copy(foreign, &files[1]).unwrap();
    assert!(bad().unwrap().1.contains("does not follow"));
}

#[tokio::test]
async fn what_was_tampered_with_in_the_database_goes_to_no_archive() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    fill(&log).await;
    let path = url.trim_start_matches("sqlite://");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let sql = "DROP TRIGGER events_only_erased; UPDATE events SET actor = 'cli:0' WHERE position = 3";
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    let directory = TempDir::new().unwrap();
    let refused = write(&log, directory.path(), 8).await;
    assert!(matches!(refused, Err(ArchiveError::Log(crate::LogError::Corrupt { position: 3, .. }))), "{refused:?}");
    assert_eq!(verify(directory.path()).unwrap().segments, 0);
}
