//! Certificates, keys and authorities by the files that they were read from, each as it was when it could last be used.
//!
//! A file that can't be used holds up no other one: where it was used before, what it held then stays in use.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

use crate::domain::freshness::UnixSeconds;
use crate::domain::tenant::KeyPair;
use crate::files;
use crate::tls::pem;
use crate::tls::toward::{self, Authorities, Client};

/// Everything that was read and can be used. Private keys appear in no `Debug`.
#[derive(Default)]
pub struct Shelf {
    shown: HashMap<KeyPair, Arc<CertifiedKey>>,
    clients: HashMap<KeyPair, Client>,
    authorities: HashMap<PathBuf, Authorities>,
}

/// Reads files, each once, and takes from a shelf what can't be used now and could be before.
pub struct Reading<'a> {
    former: &'a Shelf,
    now: UnixSeconds,
    shown: HashMap<KeyPair, Result<Arc<CertifiedKey>, Vec<String>>>,
    clients: HashMap<KeyPair, Result<Client, Vec<String>>>,
    authorities: HashMap<PathBuf, Result<Authorities, Vec<String>>>,
    kept: BTreeMap<String, Vec<String>>,
}

impl<'a> Reading<'a> {
    /// Begins at a time. A certificate that is not valid then is a warning in the log.
    #[must_use]
    pub fn new(former: &'a Shelf, now: UnixSeconds) -> Self {
        let (shown, clients, authorities, kept) = Default::default();
        Self { former, now, shown, clients, authorities, kept }
    }

    /// The problems of files whose former content is in use, by the file that stands for them.
    #[must_use]
    pub const fn kept(&self) -> &BTreeMap<String, Vec<String>> {
        &self.kept
    }

    /// Everything that was asked for and can be used.
    #[must_use]
    pub fn finish(self) -> Shelf {
        Shelf {
            shown: usable(self.shown),
            clients: usable(self.clients),
            authorities: usable(self.authorities),
        }
    }

    /// Everything for which a certificate can't be shown to clients.
    #[must_use]
    pub fn problems_of_shown(&mut self, pair: &KeyPair) -> Vec<String> {
        self.shown(pair).err().unwrap_or_default()
    }

    /// A certificate that clients are shown.
    ///
    /// # Errors
    ///
    /// Every problem, with the path of its file.
    pub(super) fn shown(&mut self, pair: &KeyPair) -> Result<Arc<CertifiedKey>, Vec<String>> {
        let now = self.now;
        let load = |problems: &mut Vec<String>| {
            pem::identity(pair, now, problems).map(|identity| Arc::new(identity.certified))
        };
        let name = || files::shown(&pair.cert);
        read(&mut self.shown, &self.former.shown, pair, load, name, &mut self.kept)
    }

    /// A certificate that upstreams are shown.
    pub(super) fn client(&mut self, pair: &KeyPair) -> Result<Client, Vec<String>> {
        let now = self.now;
        let load = |problems: &mut Vec<String>| toward::client(pair, now, problems);
        let name = || files::shown(&pair.cert);
        read(&mut self.clients, &self.former.clients, pair, load, name, &mut self.kept)
    }

    /// Authorities of upstreams.
    pub(super) fn authorities(&mut self, path: &PathBuf) -> Result<Authorities, Vec<String>> {
        let load = |problems: &mut Vec<String>| toward::authorities(path, problems);
        read(
            &mut self.authorities,
            &self.former.authorities,
            path,
            load,
            || files::shown(path),
            &mut self.kept,
        )
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shelf").finish_non_exhaustive()
    }
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reading").finish_non_exhaustive()
    }
}

fn usable<K: Eq + Hash, V>(read: HashMap<K, Result<V, Vec<String>>>) -> HashMap<K, V> {
    read.into_iter().filter_map(|(key, value)| Some((key, value.ok()?))).collect()
}

fn read<K: Clone + Eq + Hash, V: Clone>(
    read: &mut HashMap<K, Result<V, Vec<String>>>,
    former: &HashMap<K, V>,
    key: &K,
    load: impl FnOnce(&mut Vec<String>) -> Option<V>,
    name: impl FnOnce() -> String,
    kept: &mut BTreeMap<String, Vec<String>>,
) -> Result<V, Vec<String>> {
    if let Some(known) = read.get(key) {
        return known.clone();
    }
    let mut problems = Vec::new();
    let value = match (load(&mut problems), former.get(key)) {
        (Some(value), _) => Ok(value),
        (None, Some(former)) => {
            kept.insert(name(), problems);
            Ok(former.clone())
        }
        (None, None) => Err(problems),
    };
    read.insert(key.clone(), value.clone());
    value
}

#[cfg(test)]
mod tests {
    use super::{Reading, Shelf};
    use crate::tls::fixture::{Folder, NOW, SelfSigned};

    #[test]
    fn each_file_is_used_as_it_was_when_it_could_last_be() {
        let (folder, old, new) = (Folder::new(), SelfSigned::new("a"), SelfSigned::new("a"));
        let pairs = ["a", "b"].map(|name| folder.pair_of(name, &old.cert_pem, &old.key_pem));
        let ca = folder.write("ca.crt", &old.cert_pem);
        let empty = Shelf::default();
        let mut reading = Reading::new(&empty, NOW);
        for pair in &pairs {
            reading.shown(pair).unwrap();
            reading.client(pair).unwrap();
        }
        reading.authorities(&ca).unwrap();
        assert!(reading.kept().is_empty());
        let mut shelf = reading.finish();

        folder.pair_of("a", "", &new.key_pem);
        folder.pair_of("b", &new.cert_pem, &new.key_pem);
        folder.write("ca.crt", "");
        for _ in 0..2 {
            let mut reading = Reading::new(&shelf, NOW);
            let shown = |reading: &mut Reading<'_>| pairs.each_ref().map(|pair| reading.shown(pair).unwrap());
            let [a, b] = shown(&mut reading).map(|shown| shown.cert[0].clone());
            assert_eq!([a, b], [old.cert_der.clone(), new.cert_der.clone()]);
            let clients = pairs.each_ref().map(|pair| reading.client(pair).unwrap().chain[0].clone());
            assert_eq!(clients, [old.cert_der.clone(), new.cert_der.clone()]);
            assert_eq!(reading.authorities(&ca).unwrap().certificates[0], old.cert_der);
            let kept: Vec<&String> = reading.kept().keys().collect();
            assert!(kept.len() == 2 && kept[0].ends_with("a.crt") && kept[1].ends_with("ca.crt"), "{kept:?}");
            // Files that nobody names any more are forgotten.
            shelf = reading.finish();
        }
        let forgotten = Reading::new(&shelf, NOW).finish();
        let mut reading = Reading::new(&forgotten, NOW);
        assert!(reading.shown(&pairs[0]).unwrap_err()[0].contains("a.crt: holds no certificate"));
        assert_eq!(format!("{reading:?} {shelf:?}"), "Reading { .. } Shelf { .. }");
    }
}
