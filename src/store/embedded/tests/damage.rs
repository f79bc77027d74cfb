//! Damaged files are refused, or all of their data is there; never is a part of it missing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::domain::endpoint::Endpoint;
use crate::ports::store::{KeyChange, NewKey, Store};
use crate::store::contract::{agent, claim, digest};
use crate::store::embedded::file::{Disk, OpenError};
use crate::store::embedded::tables;
use crate::store::embedded::tests::faults::on;
use crate::store::embedded::tests::platter::Platter;
use crate::store::embedded::tests::{START_SECS, by_nonce, clock, open};

const AGENTS: u64 = 60;

/// The bytes of a store that holds a known set of keys and nonces: as left by a crash, and as closed.
async fn images() -> [Vec<u8>; 2] {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    for number in 0..AGENTS {
        let endpoint =
            Endpoint::parse(&format!("https://agent-{number}.example/{}", "x".repeat(300))).unwrap();
        let new_key = NewKey { digest: digest(number), declared_endpoint: Some(endpoint) };
        store.change_key(agent(number), claim(1, START_SECS), KeyChange::Issue(new_key)).await.unwrap();
        by_nonce(&store, number, 2).await;
    }
    let crashed = platter.bytes();
    drop(store);
    [crashed, platter.bytes()]
}

/// True when the store opens with everything in it, false when it is refused. The second try must not differ for the
/// worse: a refusal may not "repair" the file into one with less in it.
fn is_whole(bytes: Vec<u8>, what: &str) -> bool {
    let platter = Platter::with(bytes);
    let whole = [(); 2].map(|()| match platter.open() {
        Ok((database, loaded)) => {
            let keys: HashSet<_> = loaded.keys.iter().map(|key| (key.agent, key.digest)).collect();
            let origins = loaded.keys.iter().filter(|key| key.origin.is_some()).count();
            assert_eq!(keys, (0..AGENTS).map(|number| (agent(number), digest(number))).collect(), "{what}");
            assert_eq!(origins as u64, AGENTS, "{what}");
            for number in 0..AGENTS {
                for nonce in 1..=2 {
                    let used = tables::has_used(&database, agent(number), &claim(nonce, START_SECS)).unwrap();
                    assert!(used, "{what}: a nonce is missing");
                }
            }
            true
        }
        Err(OpenError::Damaged { .. } | OpenError::UnknownLayout { .. }) => false,
        Err(other) => panic!("{what}: {other}"),
    });
    whole[0]
}

/// Numbers that are as good as random and the same in every run.
fn scattered(seed: u64) -> usize {
    let mixed = (seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 24).unwrap()
}

/// Where something is written at all: most of a young file is empty.
fn used_places(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|place| bytes[*place] != 0).collect()
}

#[tokio::test]
async fn every_flipped_bit_of_the_header_is_harmless_or_refused() {
    for (name, image) in ["crashed", "closed"].into_iter().zip(images().await) {
        assert!(is_whole(image.clone(), name), "untouched");
        for place in 0..320 {
            // Every bit around the byte that no checksum covers, one bit of each of the others.
            let bits = if (8..12).contains(&place) { 0..8 } else { place % 8..place % 8 + 1 };
            for bit in bits {
                let mut bytes = image.clone();
                bytes[place] ^= 1 << bit;
                is_whole(bytes, &format!("{name}, bit {bit} of byte {place}"));
            }
        }
    }
}

#[tokio::test]
async fn flipped_bits_anywhere_are_harmless_or_refused() {
    for (name, image) in ["crashed", "closed"].into_iter().zip(images().await) {
        let places = used_places(&image);
        let mut refused = 0;
        for seed in 0..400 {
            let place = places[scattered(seed) % places.len()];
            let mut bytes = image.clone();
            bytes[place] ^= 1 << (seed % 8);
            refused += u32::from(!is_whole(bytes, &format!("{name}, byte {place}")));
        }
        assert!(refused > 0, "{name}: no flip mattered");
    }
}

#[tokio::test]
async fn garbage_and_zeros_over_whole_sectors_are_harmless_or_refused() {
    for (name, image) in ["crashed", "closed"].into_iter().zip(images().await) {
        let places = used_places(&image);
        for seed in 0..150 {
            let start = places[scattered(seed) % places.len()] & !511;
            let mut bytes = image.clone();
            for (offset, byte) in bytes[start..start + 512].iter_mut().enumerate() {
                *byte = if seed % 2 == 0 { 0 } else { scattered(seed * 512 + offset as u64) as u8 };
            }
            is_whole(bytes, &format!("{name}, sector at {start}, seed {seed}"));
        }
    }
}

#[tokio::test]
async fn a_cut_file_is_refused_or_whole_and_a_strange_one_refused() {
    for (name, image) in ["crashed", "closed"].into_iter().zip(images().await) {
        let lengths =
            (0..40).map(|part| image.len() * part / 40).chain([1, 9, 10, 319, 320, 321, 4_096, 8_192]);
        for len in lengths.chain((1..20).map(|pages| image.len() - pages * 4_096)) {
            is_whole(image[..len].to_vec(), &format!("{name}, cut to {len}"));
        }
        let longer = [image.clone(), vec![0; 4_096]].concat();
        is_whole(longer, &format!("{name}, lengthened"));
    }
    for strange in [vec![], vec![0; 8_192], b"SQLite format 3\0".repeat(1_000)] {
        assert!(!is_whole(strange, "strange"));
    }
}

#[tokio::test]
async fn a_file_of_zero_length_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.redb");
    fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let error = open(folder.path(), &clock()).err().unwrap();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    }
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    assert!(is_file_refused(folder.path(), b"not a store"));
}

fn is_file_refused(folder: &Path, content: &[u8]) -> bool {
    fs::write(folder.join("tiergate.redb"), content).unwrap();
    matches!(open(folder, &clock()), Err(OpenError::Damaged { .. }))
}
