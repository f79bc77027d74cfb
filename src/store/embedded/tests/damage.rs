//! Damaged files are refused, or all of their data is there; never is a part of it missing.

use std::{collections::HashSet, fs};

use crate::domain::WebOrigin;
use crate::ports::{KeyChange, NewKey, Store};
use crate::store::contract::{agent, claim, digest, key};
use crate::store::embedded::tests::{START_SECS, by_nonce, clock, on, open, used_nonces};
use crate::store::{contract::seed::seed, embedded::file::OpenError, embedded::tests::platter::Platter};

const AGENTS: u64 = 40;

/// It says which of the last two commits is current. redb takes it as it stands.
const BYTE_WITHOUT_CHECKSUM: usize = 9;

/// The bytes of a store that holds a known set of keys and nonces: as left by a crash, and as closed.
async fn images() -> [(&'static str, Vec<u8>); 2] {
    let platter = Platter::with_store();
    let store = on(&platter, &clock());
    for number in 0..AGENTS {
        let origin = WebOrigin::parse(&format!("https://agent-{number}.example")).unwrap();
        let new_key = NewKey { origin: Some(origin), ..key(number) };
        store.changed(agent(number), claim(1, START_SECS), KeyChange::Issue(new_key)).await.unwrap();
        by_nonce(&store, number, 2).await;
    }
    let crashed = platter.bytes();
    drop(store);
    [("crashed", crashed), ("closed", platter.bytes())]
}

/// How many images were whole and how many were refused.
#[derive(Debug, Default)]
struct Judged {
    whole: u32,
    refused: u32,
}

impl Judged {
    /// A store opens with everything in it, or is refused; then also the second time: a refusal may not "repair" the file
    /// into one with less in it.
    fn judge(&mut self, bytes: Vec<u8>, what: &str) {
        let platter = Platter::with(bytes);
        if is_whole(&platter, what) {
            self.whole += 1;
        } else {
            self.refused += 1;
            is_whole(&platter, what);
        }
    }

    /// The damage was real, and not all of it.
    fn was_both(&self) {
        assert!(self.whole > 0 && self.refused > 0, "{self:?}");
    }
}

fn is_whole(platter: &Platter, what: &str) -> bool {
    match platter.open() {
        Ok((database, loaded)) => {
            let keys: HashSet<_> =
                loaded.keys.iter().map(|(agent, key)| (*agent, key.digests()[0])).collect();
            assert_eq!(keys, (0..AGENTS).map(|number| (agent(number), digest(number))).collect(), "{what}");
            let origins = loaded.keys.into_iter().filter(|(agent, keys)| {
                let owner = keys.clone().find(*agent, &keys.digests()[0], || 0);
                owner.is_some_and(|owner| owner.declared_origin.is_some())
            });
            assert_eq!(origins.count() as u64, AGENTS, "{what}");
            let nonces: HashSet<_> = used_nonces(&database).into_iter().collect();
            let used = |number| [1, 2].map(|nonce| (agent(number), claim(nonce, 0).nonce));
            assert_eq!(nonces, (0..AGENTS).flat_map(used).collect(), "{what}");
            true
        }
        Err(OpenError::Damaged { .. } | OpenError::UnknownLayout { .. }) => false,
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Numbers that are as good as random, and that a seed determines.
fn scattered(seed: u64, number: u64) -> usize {
    fastrand::Rng::with_seed(seed.wrapping_add(number)).u32(..) as usize
}

/// Where something is written at all: most of a young file is empty.
fn used_places(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|place| bytes[*place] != 0 && *place != BYTE_WITHOUT_CHECKSUM).collect()
}

#[tokio::test]
async fn flipped_bits_of_the_header_are_harmless_or_refused() {
    for (name, image) in images().await {
        let mut judged = Judged::default();
        judged.judge(image.clone(), name);
        assert_eq!(judged.whole, 1, "untouched");
        for place in (0..320).filter(|place| *place != BYTE_WITHOUT_CHECKSUM) {
            let mut bytes = image.clone();
            bytes[place] ^= 1 << (place % 8);
            judged.judge(bytes, &format!("{name}, byte {place}"));
        }
        judged.was_both();
    }
}

#[tokio::test]
async fn flipped_bits_anywhere_are_harmless_or_refused() {
    let seed = seed();
    for (name, image) in images().await {
        let (places, mut judged) = (used_places(&image), Judged::default());
        for number in 0..100 {
            let place = places[scattered(seed, number) % places.len()];
            let mut bytes = image.clone();
            bytes[place] ^= 1 << (number % 8);
            judged.judge(bytes, &format!("{name}, byte {place}"));
        }
        judged.was_both();
    }
}

#[tokio::test]
async fn garbage_and_zeros_over_whole_sectors_are_harmless_or_refused() {
    let seed = seed();
    for (name, image) in images().await {
        let (places, mut judged) = (used_places(&image), Judged::default());
        for number in 0..100 {
            let start = places[scattered(seed, number) % places.len()] & !511;
            let mut bytes = image.clone();
            for (offset, byte) in bytes[start..start + 512].iter_mut().enumerate() {
                let garbage = scattered(seed, number * 512 + offset as u64);
                *byte = if number % 2 == 0 { 0 } else { garbage as u8 };
            }
            judged.judge(bytes, &format!("{name}, sector at {start}, number {number}"));
        }
        judged.was_both();
    }
}

#[tokio::test]
async fn a_cut_file_is_whole_or_refused_and_another_kind_of_file_is_refused() {
    let mut judged = Judged::default();
    for (name, image) in images().await {
        let lengths =
            (0..40).map(|part| image.len() * part / 40).chain([1, 9, 10, 319, 320, 321, 4_096, 8_192]);
        for len in lengths.chain((1..20).map(|pages| image.len() - pages * 4_096)) {
            judged.judge(image[..len].to_vec(), &format!("{name}, cut to {len}"));
        }
        let longer = [image.clone(), vec![0; 4_096]].concat();
        judged.judge(longer, &format!("{name}, lengthened"));
    }
    judged.was_both();
    for strange in [vec![], vec![0; 8_192], b"SQLite format 3\0".repeat(1_000), b"not a store".to_vec()] {
        assert!(!is_whole(&Platter::with(strange), "strange"));
    }
}

#[tokio::test]
async fn a_file_of_zero_length_is_refused_by_name_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiergate.redb");
    fs::write(&file, "").unwrap();
    let error = open(folder.path(), &clock()).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
}
