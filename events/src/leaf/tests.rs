use super::*;
use crate::{envelope::StreamName, time::Micros};
use uuid::Uuid;

fn event() -> Recorded {
    Recorded {
        position: 1,
        stream: StreamName::engine(),
        version: 1,
        event_id: Uuid::from_u128(1),
        event_type: "engine.scheduling_lifted".to_owned(),
        schema: 1,
        recorded_at: Micros(1_796_049_917_357_000),
        actor: "cli:0".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: vec![0xa0],
        content: None,
        salt: None,
        commitment: None,
        leaf_hash: [0; 32],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_leaf_is_the_cbor_array_of_the_columns() {
    assert_eq!(
        hex(&leaf(&event(), &[])),
        concat!(
            "8d01",
            "66656e67696e65",
            "01",
            "5000000000000000000000000000000001",
            "7818656e67696e652e7363686564756c696e675f6c6966746564",
            "01",
            "1b0006617f7552abc8",
            "65636c693a30",
            "f6f680",
            "41a0",
            "f6"
        )
    );
    // As a second implementation, in another language, computed it.
    assert_eq!(hex(&leaf_hash(&event(), &[])), "3d12d218cccf7969add480d2b9dca01e0e34b0e75dccdde52b72272004fc4db3");
}

#[test]
fn key_hashes_are_sorted_so_that_their_order_does_not_matter() {
    assert_eq!(leaf(&event(), &[[2; 32], [1; 32]]), leaf(&event(), &[[1; 32], [2; 32]]));
    assert_ne!(leaf(&event(), &[]), leaf(&event(), &[[1; 32]]));
}

#[test]
fn integers_take_their_shortest_form() {
    for (value, bytes) in [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65_536, "1a00010000"),
        (4_294_967_296, "1b0000000100000000"),
        (-1, "20"),
        (-500, "3901f3"),
    ] {
        let mut out = Vec::new();
        integer(&mut out, value);
        assert_eq!(hex(&out), bytes);
    }
}

#[test]
fn erasing_content_leaves_the_leaf_as_it_was() {
    let mut with = event();
    with.salt = Some([7; 16]);
    with.content = Some(vec![0xa1, 0x61, 0x61, 0x01]);
    with.commitment = Some(commitment(&[7; 16], &[0xa1, 0x61, 0x61, 0x01]));
    let mut without = with.clone();
    without.salt = None;
    without.content = None;
    assert!(without.erased());
    assert_eq!(leaf_hash(&with, &[]), leaf_hash(&without, &[]));
}
