//! Certificates, keys, authorities and lists of agents by the files that they were read from, each as it was when it could last be used.
//!
//! A file that can't be used holds up no other one: where it was used before, what it held then stays in use.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::{hash::Hash, sync::Arc};

use crate::domain::{Agents, KeyPair, UnixSeconds};
use crate::files::{self, Fingerprints};
use crate::tls::pem::{self, Authorities, Identity};
use crate::tls::signing::{self, SigningKeys};

/// Files that were read and can be used. There is no `Debug`: there are private keys in them.
#[derive(Default)]
pub(crate) struct LoadedFiles {
    pairs: HashMap<KeyPair, Arc<Identity>>,
    authorities: HashMap<PathBuf, Authorities>,
    signing: HashMap<PathBuf, Arc<SigningKeys>>,
    agents: HashMap<PathBuf, Arc<Agents>>,
}

/// Reads files, each once, and takes from those that were loaded before what can't be used now and could be before.
pub(crate) struct FileLoader<'a> {
    former: &'a LoadedFiles,
    now: UnixSeconds,
    pairs: HashMap<KeyPair, Result<Arc<Identity>, Vec<String>>>,
    authorities: HashMap<PathBuf, Result<Authorities, Vec<String>>>,
    signing: HashMap<PathBuf, Result<Arc<SigningKeys>, Vec<String>>>,
    agents: HashMap<PathBuf, Result<Arc<Agents>, Vec<String>>>,
    /// The problems of files whose former content is in use, by the file that stands for them.
    pub(crate) kept: BTreeMap<String, Vec<String>>,
    seen: Fingerprints,
}

impl LoadedFiles {
    /// When the first certificate of a pair's chain expires, in Unix seconds.
    pub(crate) fn expiry(&self, pair: &KeyPair) -> Option<i64> {
        pem::expiry(&self.pairs.get(pair)?.certified.cert)
    }

    /// True if a pair holds other certificates than before.
    pub(crate) fn replaces(&self, former: &Self) -> bool {
        let is_other = |(pair, now): (_, &Arc<Identity>)| {
            former.pairs.get(pair).is_some_and(|then| then.certified.cert != now.certified.cert)
        };
        self.pairs.iter().any(is_other)
    }
}

impl<'a> FileLoader<'a> {
    /// Begins at a time. A certificate that is not valid then is a warning in the log.
    pub(crate) fn new(former: &'a LoadedFiles, now: UnixSeconds) -> Self {
        let (pairs, authorities, signing, agents, kept, seen) = Default::default();
        Self { former, now, pairs, authorities, signing, agents, kept, seen }
    }

    /// The files that were asked for and can be used, and how each was before it was read.
    pub(crate) fn finish(self) -> (LoadedFiles, Fingerprints) {
        let (pairs, authorities) = (usable(self.pairs), usable(self.authorities));
        let (signing, agents) = (usable(self.signing), usable(self.agents));
        (LoadedFiles { pairs, authorities, signing, agents }, self.seen)
    }

    /// A certificate with its key, or every problem, with the path of its file.
    pub(crate) fn identity(&mut self, pair: &KeyPair) -> Result<Arc<Identity>, Vec<String>> {
        let Self { former, now, pairs, kept, seen, .. } = self;
        let load = |problems: &mut Vec<String>| {
            [&pair.cert, &pair.key].into_iter().for_each(|file| seen.add(file));
            pem::identity(pair, *now, problems).map(Arc::new)
        };
        read(pairs, &former.pairs, pair, &pair.cert, load, kept)
    }

    /// Keys that sign.
    pub(crate) fn signing_keys(&mut self, path: &PathBuf) -> Result<Arc<SigningKeys>, Vec<String>> {
        let Self { former, signing: read_keys, kept, seen, .. } = self;
        let load = |problems: &mut Vec<String>| {
            seen.add(path);
            signing::load(path, problems).map(Arc::new)
        };
        read(read_keys, &former.signing, path, path, load, kept)
    }

    /// Listed agents.
    pub(crate) fn agents(&mut self, path: &PathBuf) -> Result<Arc<Agents>, Vec<String>> {
        let Self { former, agents, kept, seen, .. } = self;
        let load = |problems: &mut Vec<String>| {
            seen.add(path);
            files::agents(path).map(Arc::new).map_err(|problem| problems.push(problem)).ok()
        };
        read(agents, &former.agents, path, path, load, kept)
    }

    /// Authorities of upstreams.
    pub(crate) fn authorities(&mut self, path: &PathBuf) -> Result<Authorities, Vec<String>> {
        let Self { former, authorities, kept, seen, .. } = self;
        let load = |problems: &mut Vec<String>| {
            seen.add(path);
            pem::authorities(path, problems)
        };
        read(authorities, &former.authorities, path, path, load, kept)
    }
}

fn usable<K: Eq + Hash, V>(read: HashMap<K, Result<V, Vec<String>>>) -> HashMap<K, V> {
    read.into_iter().filter_map(|(key, value)| Some((key, value.ok()?))).collect()
}

fn read<K: Clone + Eq + Hash, V: Clone>(
    read: &mut HashMap<K, Result<V, Vec<String>>>,
    former: &HashMap<K, V>,
    key: &K,
    file: &Path,
    load: impl FnOnce(&mut Vec<String>) -> Option<V>,
    kept: &mut BTreeMap<String, Vec<String>>,
) -> Result<V, Vec<String>> {
    if let Some(known) = read.get(key) {
        return known.clone();
    }
    let mut problems = Vec::new();
    let value = match (load(&mut problems), former.get(key)) {
        (Some(value), _) => Ok(value),
        (None, Some(former)) => {
            kept.insert(files::shown(file), problems);
            Ok(former.clone())
        }
        (None, None) => Err(problems),
    };
    read.insert(key.clone(), value.clone());
    value
}

#[cfg(test)]
mod tests {
    use super::{FileLoader, LoadedFiles};
    use crate::tls::fixture::{Folder, NOT_AFTER, NOW, SelfSigned};

    #[test]
    fn each_file_is_used_as_it_was_when_it_could_last_be() {
        let (folder, old, new) = (Folder::new(), SelfSigned::new("a"), SelfSigned::new("a"));
        let pairs = ["a", "b"].map(|name| folder.pair_of(name, &old.cert_pem, &old.key_pem));
        let ca = folder.write("ca.crt", &old.cert_pem);
        let list = folder.write("agents", "1 3\n2 1\n");
        let empty = LoadedFiles::default();
        let mut loader = FileLoader::new(&empty, NOW);
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
            let mut loader = FileLoader::new(&files, NOW);
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
        let forgotten = FileLoader::new(&files, NOW).finish().0;
        let mut loader = FileLoader::new(&forgotten, NOW);
        assert!(loader.identity(&pairs[0]).err().unwrap()[0].contains("a.crt: holds no certificate"));
    }
}
