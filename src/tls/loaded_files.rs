//! Certificates, keys, authorities and lists of agents by the files that they were read from, each as it was when it could last be used.
//!
//! A file that can't be used holds up no other one: where it was used before, what it held then stays in use.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::{hash::Hash, sync::Arc};

use crate::domain::{Agents, KeyPair};
use crate::files::{self, Fingerprints};
use crate::tls::pem::{self, Authorities, Identity};
use crate::tls::signing::{self, SigningKeys};

/// The content of files of one kind, or every problem, with the path of its file.
type Read<K, V> = HashMap<K, Result<V, Vec<String>>>;

/// Files that were read. There is no `Debug`: there are private keys in them.
#[derive(Default)]
pub(crate) struct LoadedFiles {
    pairs: Read<KeyPair, Arc<Identity>>,
    authorities: Read<PathBuf, Authorities>,
    signing: Read<PathBuf, Arc<SigningKeys>>,
    agents: Read<PathBuf, Arc<Agents>>,
}

/// Reads files, each once, and takes from those that were loaded before what can't be used now and could be before.
pub(crate) struct FileLoader<'a> {
    former: &'a LoadedFiles,
    read: LoadedFiles,
    /// The problems of files whose former content is in use, by the file that stands for them.
    pub(crate) kept: BTreeMap<String, Vec<String>>,
    seen: Fingerprints,
}

impl LoadedFiles {
    /// When the first certificate of a pair's chain expires, in Unix seconds.
    pub(crate) fn expiry(&self, pair: &KeyPair) -> Option<i64> {
        pem::expiry(&self.pairs.get(pair)?.as_ref().ok()?.certified.cert)
    }

    /// True if a pair holds other certificates than before.
    pub(crate) fn replaces(&self, former: &Self) -> bool {
        self.pairs.iter().any(|(pair, now)| {
            let both = now.as_ref().ok().zip(former.pairs.get(pair).and_then(|then| then.as_ref().ok()));
            both.is_some_and(|(now, then)| now.certified.cert != then.certified.cert)
        })
    }
}

impl<'a> FileLoader<'a> {
    /// Begins with those that are in use.
    pub(crate) fn new(former: &'a LoadedFiles) -> Self {
        let (read, kept, seen) = Default::default();
        Self { former, read, kept, seen }
    }

    /// The files that were asked for, and how each was before it was read.
    pub(crate) fn finish(self) -> (LoadedFiles, Fingerprints) {
        (self.read, self.seen)
    }

    /// A certificate with its key.
    pub(crate) fn identity(&mut self, pair: &KeyPair) -> Result<Arc<Identity>, Vec<String>> {
        let Self { former, read, kept, seen } = self;
        let load = || pem::identity(pair).map(Arc::new);
        once(&mut read.pairs, &former.pairs, pair, &[&pair.cert, &pair.key], (kept, seen), load)
    }

    /// A certificate with its key that was asked for before, if it can be used.
    pub(crate) fn read_identity(&self, pair: &KeyPair) -> Option<&Identity> {
        self.read.pairs.get(pair)?.as_deref().ok()
    }

    /// Keys that sign.
    pub(crate) fn signing_keys(&mut self, path: &PathBuf) -> Result<Arc<SigningKeys>, Vec<String>> {
        let Self { former, read, kept, seen, .. } = self;
        let load = || signing::load(path).map(Arc::new).map_err(|problem| vec![problem]);
        once(&mut read.signing, &former.signing, path, &[path], (kept, seen), load)
    }

    /// Listed agents.
    pub(crate) fn agents(&mut self, path: &PathBuf) -> Result<Arc<Agents>, Vec<String>> {
        let Self { former, read, kept, seen, .. } = self;
        let load = || files::agents(path).map(Arc::new).map_err(|problem| vec![problem]);
        once(&mut read.agents, &former.agents, path, &[path], (kept, seen), load)
    }

    /// Authorities of upstreams.
    pub(crate) fn authorities(&mut self, path: &PathBuf) -> Result<Authorities, Vec<String>> {
        let Self { former, read, kept, seen, .. } = self;
        let load = || pem::authorities(path).map_err(|problem| vec![problem]);
        once(&mut read.authorities, &former.authorities, path, &[path], (kept, seen), load)
    }
}

/// Reads files, the first of which stands for them, unless they were read before.
fn once<K: Clone + Eq + Hash, V: Clone>(
    read: &mut Read<K, V>,
    former: &Read<K, V>,
    key: &K,
    files: &[&Path],
    (kept, seen): (&mut BTreeMap<String, Vec<String>>, &mut Fingerprints),
    load: impl FnOnce() -> Result<V, Vec<String>>,
) -> Result<V, Vec<String>> {
    if let Some(known) = read.get(key) {
        return known.clone();
    }
    files.iter().for_each(|file| seen.add(file));
    let value = load().or_else(|problems| match former.get(key) {
        Some(Ok(former)) => {
            kept.extend(files.first().map(|file| (files::shown(file), problems)));
            Ok(former.clone())
        }
        Some(Err(_)) | None => Err(problems),
    });
    read.insert(key.clone(), value.clone());
    value
}

#[cfg(test)]
mod tests {
    use super::{FileLoader, LoadedFiles};
    use crate::tls::fixture::{Folder, NOT_AFTER, SelfSigned};

    #[test]
    fn each_file_is_used_as_it_was_when_it_could_last_be() {
        let (folder, old, new) = (Folder::new(), SelfSigned::new("a"), SelfSigned::new("a"));
        let pairs = ["a", "b"].map(|name| folder.pair_of(name, &old.cert_pem, &old.key_pem));
        let ca = folder.write("ca.crt", &old.cert_pem);
        let list = folder.write("agents", "1 3\n2 1\n");
        let empty = LoadedFiles::default();
        let mut loader = FileLoader::new(&empty);
        for pair in &pairs {
            loader.identity(pair).unwrap();
        }
        loader.authorities(&ca).unwrap();
        let agents = loader.agents(&list).unwrap();
        assert!(loader.kept.is_empty());
        let (mut files, seen) = loader.finish();
        let named =
            ["a.crt", "a.key", "agents", "b.crt", "b.key", "ca.crt"].map(|name| folder.path().join(name));
        assert_eq!(seen.into_files(), named, "each file that is loaded is watched");

        folder.pair_of("a", "", &new.key_pem);
        folder.pair_of("b", &new.cert_pem, &new.key_pem);
        folder.write("ca.crt", "");
        folder.write("agents", "1 3\n2");
        let mut is_replaced = false;
        for _ in 0..2 {
            let mut loader = FileLoader::new(&files);
            let shown = pairs.each_ref().map(|pair| loader.identity(pair).unwrap().certified.cert[0].clone());
            assert_eq!(shown, [old.cert_der.clone(), new.cert_der.clone()]);
            assert_eq!(loader.authorities(&ca).unwrap().certificates[0], old.cert_der);
            assert_eq!(loader.agents(&list).unwrap(), agents);
            let kept: Vec<&String> = loader.kept.keys().collect();
            let names = ["a.crt", "agents", "ca.crt"];
            assert!(
                kept.len() == 3 && kept.iter().zip(names).all(|(kept, name)| kept.ends_with(name)),
                "{kept:?}"
            );
            // Files that nobody names any more are forgotten.
            let now = loader.finish().0;
            assert_eq!(now.replaces(&files), !is_replaced, "the second time nothing is new");
            (files, is_replaced) = (now, true);
            assert_eq!(pairs.each_ref().map(|pair| files.expiry(pair)), [i64::try_from(NOT_AFTER).ok(); 2]);
        }
        let forgotten = FileLoader::new(&files).finish().0;
        let mut loader = FileLoader::new(&forgotten);
        assert!(loader.identity(&pairs[0]).err().unwrap()[0].contains("a.crt: holds no certificate"));
    }
}
