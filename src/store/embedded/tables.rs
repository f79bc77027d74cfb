//! The tables of the embedded store's file.

use std::collections::HashMap;

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, TableError, WriteTransaction,
};

use crate::domain::{
    AgentId, Binding, HeldKey, KeyDays, KeyDigest, NonceClaim, VERSION_2, WebOrigin, held_key,
};
use crate::store::embedded::keys::Keys;

/// The layout that this version writes and reads.
pub(super) const LAYOUT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const META_LAYOUT: &str = "layout";
const META_FORGOTTEN_BEFORE: &str = "forgotten_before";

/// The chain that the store is for.
const BINDING: TableDefinition<'_, &str, &str> = TableDefinition::new("binding");
const BINDING_CHAIN: &str = "chain";

/// Agent → digest of its key and the endpoint that was declared with it. Or of its first key and, in the endpoint's place, the
/// record of all of them, from version 2 on: releases that don't know it refuse such keys until they are replaced.
const KEYS: TableDefinition<'_, [u8; 32], ([u8; 32], Option<&str>)> = TableDefinition::new("keys");

/// Agent → digest of its key and the account that signed for it. A table of its own: releases that don't know it can still
/// use the file, and the digest tells a key that one of them has made.
const SIGNERS: TableDefinition<'_, [u8; 32], ([u8; 32], [u8; 20])> = TableDefinition::new("signers");

/// Digest → the days on which the key was made and last used. A table of its own, as that of signers.
const DAYS: TableDefinition<'_, [u8; 32], (u32, Option<u32>)> = TableDefinition::new("days");

/// Agent and nonce → Unix seconds of use, or of the signature's timestamp if that is later.
const NONCES: TableDefinition<'_, [u8; 64], u64> = TableDefinition::new("nonces");

/// The same rows by time, for forgetting the oldest.
const NONCES_BY_TIME: TableDefinition<'_, (u64, [u8; 64]), ()> = TableDefinition::new("nonces_by_time");

/// Content of the file that the store keeps in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) keys: HashMap<AgentId, Keys>,
    /// Nonces of signatures made before this may have been forgotten. Unix seconds.
    pub(super) forgotten_before: u64,
    /// The latest time of a remembered nonce, in Unix seconds.
    pub(super) newest_use_secs: Option<u64>,
    /// How many nonces there are.
    pub(super) nonces: u64,
}

/// Makes the tables in a new database, which takes signatures made from a moment on.
pub(super) fn lay_out(database: &Database, binding: &Binding, from: u64) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    tables.meta.insert(META_LAYOUT, LAYOUT)?;
    tables.set_forgotten_before(from)?;
    drop(tables);
    write_binding(&transaction, binding)?;
    Ok(transaction.commit()?)
}

/// The chain that the file is for, as its text; `None` in a file of release 0.1.
pub(super) fn binding(database: &Database) -> Result<Option<String>, redb::Error> {
    match database.begin_read()?.open_table(BINDING) {
        Ok(table) => Ok(table.get(BINDING_CHAIN)?.map(|text| text.value().to_owned())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Binds a file of release 0.1.
pub(super) fn bind(database: &Database, binding: &Binding) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    write_binding(&transaction, binding)?;
    Ok(transaction.commit()?)
}

fn write_binding(transaction: &WriteTransaction, binding: &Binding) -> Result<(), redb::Error> {
    transaction.open_table(BINDING)?.insert(BINDING_CHAIN, binding.as_str())?;
    Ok(())
}

/// The layout that the file names.
pub(super) fn layout(database: &Database) -> Result<u64, redb::Error> {
    meta(&database.begin_read()?, META_LAYOUT)
}

/// Reads what the store keeps in memory.
pub(super) fn load(database: &Database) -> Result<Loaded, redb::Error> {
    let transaction = database.begin_read()?;
    let forgotten_before = meta(&transaction, META_FORGOTTEN_BEFORE)?;
    let newest_use_secs = transaction.open_table(NONCES_BY_TIME)?.last()?.map(|(row, _)| row.value().0);
    let signers = match transaction.open_table(SIGNERS) {
        Err(TableError::TableDoesNotExist(_)) => None,
        opened => Some(opened?),
    };
    let table = transaction.open_table(KEYS)?;
    let mut keys = HashMap::with_capacity(usize::try_from(table.len()?).unwrap_or_default());
    let mut unreadable = Vec::new();
    for row in table.iter()? {
        let (agent, key) = row?;
        let agent = AgentId::from_bytes(agent.value());
        let signer = signers.as_ref().map(|signers| signers.get(agent.to_bytes())).transpose()?.flatten();
        match held(key.value(), signer.map(|row| row.value())) {
            Some(held) => drop(keys.insert(agent, Keys::of(held))),
            None => unreadable.push(agent),
        }
    }
    if let Some(agent) = unreadable.first() {
        tracing::error!(
            %agent,
            keys = unreadable.len(),
            "the endpoints of keys in the store can't be read: these keys are refused until they are replaced"
        );
    }
    let nonces = transaction.open_table(NONCES)?.len()?;
    Ok(Loaded { keys, forgotten_before, newest_use_secs, nonces })
}

/// The keys in a row, and who signed for one in a row of version 1. `None` where another release has stored an endpoint or a record
/// that this one refuses: whether the key is used from there can't be told, so it is no key.
fn held(
    (digest, endpoint): ([u8; 32], Option<&str>),
    signer: Option<([u8; 32], [u8; 20])>,
) -> Option<Vec<HeldKey>> {
    if let Some(record) = endpoint.filter(|text| text.starts_with(VERSION_2)) {
        return held_key::read(record);
    }
    let origin = endpoint.map(WebOrigin::parse).transpose().ok()?;
    let signer = signer.filter(|(of, _)| *of == digest).map(|(_, by)| by.into());
    Some(vec![HeldKey::plain(KeyDigest::from_bytes(digest), origin, signer)])
}

fn meta(transaction: &ReadTransaction, name: &str) -> Result<u64, redb::Error> {
    let value = transaction.open_table(META)?.get(name)?.map(|value| value.value());
    value.ok_or_else(|| redb::Error::Corrupted(format!("{name} is missing")))
}

/// Begins a write transaction with a two-phase commit: redb refuses one that is damaged and never passes it over.
pub(super) fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

/// The tables while they are being written.
pub(super) struct Tables<'a> {
    transaction: &'a WriteTransaction,
    meta: Table<'a, &'static str, u64>,
    keys: Table<'a, [u8; 32], ([u8; 32], Option<&'static str>)>,
    nonces: Table<'a, [u8; 64], u64>,
    nonces_by_time: Table<'a, (u64, [u8; 64]), ()>,
}

impl<'a> Tables<'a> {
    pub(super) fn open(transaction: &'a WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            transaction,
            meta: transaction.open_table(META)?,
            keys: transaction.open_table(KEYS)?,
            nonces: transaction.open_table(NONCES)?,
            nonces_by_time: transaction.open_table(NONCES_BY_TIME)?,
        })
    }

    /// The agent's keys.
    pub(super) fn keys(&self, agent: AgentId) -> Result<Vec<HeldKey>, redb::Error> {
        // Opened for changes of keys alone: signatures, which are many more, use none of it.
        let signers = self.transaction.open_table(SIGNERS)?;
        let signer = signers.get(agent.to_bytes())?.map(|row| row.value());
        let row = self.keys.get(agent.to_bytes())?;
        let mut keys = row.and_then(|row| held(row.value(), signer)).unwrap_or_default();
        let days = self.transaction.open_table(DAYS)?;
        for key in &mut keys {
            let row = days.get(key.digest.to_bytes())?.map(|row| row.value());
            key.days = row.map(|(made, used)| KeyDays { made, used });
        }
        Ok(keys)
    }

    /// Writes that these keys were used on a day; of others it has no row. Returns if there was one to write.
    pub(super) fn note_used(&self, keys: &[KeyDigest], today: u32) -> Result<bool, redb::Error> {
        let (mut days, mut any) = (self.transaction.open_table(DAYS)?, false);
        for digest in keys.iter().map(|digest| digest.to_bytes()) {
            let row = days.get(digest)?.map(|row| row.value());
            if let Some((made, _)) = row.filter(|(_, used)| *used != Some(today)) {
                days.insert(digest, (made, Some(today)))?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Makes these the agent's keys, in the place of those before.
    pub(super) fn set_keys(
        &mut self,
        agent: AgentId,
        before: &[HeldKey],
        keys: &[HeldKey],
    ) -> Result<(), redb::Error> {
        let mut days = self.transaction.open_table(DAYS)?;
        for key in before {
            days.remove(key.digest.to_bytes())?;
        }
        for (digest, KeyDays { made, used }) in keys.iter().filter_map(|key| Some((key.digest, key.days?))) {
            days.insert(digest.to_bytes(), (made, used))?;
        }
        let mut signers = self.transaction.open_table(SIGNERS)?;
        signers.remove(agent.to_bytes())?;
        match keys {
            [] => drop(self.keys.remove(agent.to_bytes())?),
            [key] if key.is_plain() => {
                let origin = key.origin.as_ref().map(WebOrigin::as_str);
                self.keys.insert(agent.to_bytes(), (key.digest.to_bytes(), origin))?;
                if let Some(signer) = key.signer {
                    signers.insert(agent.to_bytes(), (key.digest.to_bytes(), signer.into_array()))?;
                }
            }
            [first, ..] => {
                let record = held_key::write(keys);
                self.keys.insert(agent.to_bytes(), (first.digest.to_bytes(), Some(record.as_str())))?;
            }
        }
        Ok(())
    }

    pub(super) fn has_nonce(&self, agent: AgentId, claim: &NonceClaim) -> Result<bool, redb::Error> {
        Ok(self.nonces.get(nonce_key(agent, claim))?.is_some())
    }

    pub(super) fn insert_nonce(
        &mut self,
        agent: AgentId,
        claim: &NonceClaim,
        used_at_secs: u64,
    ) -> Result<(), redb::Error> {
        let key = nonce_key(agent, claim);
        self.nonces.insert(key, used_at_secs)?;
        self.nonces_by_time.insert((used_at_secs, key), ())?;
        Ok(())
    }

    /// Forgets at most `rows_max` nonces that were used before `cutoff_secs`, oldest first. Returns how many.
    pub(super) fn forget(&mut self, cutoff_secs: u64, rows_max: usize) -> Result<usize, redb::Error> {
        let expired = self.nonces_by_time.extract_from_if(..(cutoff_secs, [0; 64]), |_, ()| true)?;
        let mut forgotten = 0;
        for row in expired.take(rows_max) {
            self.nonces.remove(row?.0.value().1)?;
            forgotten += 1;
        }
        Ok(forgotten)
    }

    pub(super) fn set_forgotten_before(&mut self, secs: u64) -> Result<(), redb::Error> {
        self.meta.insert(META_FORGOTTEN_BEFORE, secs)?;
        Ok(())
    }
}

fn nonce_key(agent: AgentId, claim: &NonceClaim) -> [u8; 64] {
    let mut key = [0; 64];
    let (front, back) = key.split_at_mut(32);
    front.copy_from_slice(&agent.to_bytes());
    back.copy_from_slice(&claim.nonce.to_bytes());
    key
}
