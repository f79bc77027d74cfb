//! Which version of each file counts, so that no two tenants have an id or a host in common.
//!
//! A claim is an id or a host. Of several files that make one, the file keeps it that has it in force, else the
//! configuration file before those of `tenants.d`, else none. All others are refused whole: their former versions stay in
//! force. It depends on no order of files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::document::Shown;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::written::quoted;
use crate::domain::host::HostPattern;
use crate::domain::tenant::Tenant;

/// How many problems of its claims one file has, at most.
const PROBLEMS_MAX: usize = 20;

/// A file with tenants.
pub(in crate::config) struct Party {
    /// As problems name it.
    pub(in crate::config) name: Arc<str>,
    /// True for the configuration file.
    pub(in crate::config) is_main: bool,
    /// Its tenants as they stand there now, each with its place; nothing if the file can't be used.
    pub(in crate::config) now: Option<Vec<(Arc<Tenant>, Location)>>,
    /// Everything else that is wrong with it. Tenants that can't be served for that claim what they claim all the same.
    pub(in crate::config) problems: Vec<Problem>,
    /// Its tenants in force.
    pub(in crate::config) before: Option<Vec<Arc<Tenant>>>,
}

/// The version of a file that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Stand {
    Now,
    Before,
    /// Neither.
    Out,
}

/// Something that one tenant alone may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Claim<'a> {
    Id(&'a str),
    Host(&'a HostPattern),
}

impl<'a> Claim<'a> {
    fn all(tenant: &'a Tenant) -> impl Iterator<Item = Self> {
        std::iter::once(Self::Id(&tenant.id)).chain(tenant.hosts.iter().map(Self::Host))
    }
}

impl Party {
    /// True for tenants that can't be served.
    pub(in crate::config) fn is_blocked(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Every claim of a version, with the table that makes it if it stands there now.
    fn claims(&self, stand: Stand) -> impl Iterator<Item = (Claim<'_>, Option<&Location>)> {
        let now = self.now.iter().flatten().filter(move |_| stand == Stand::Now);
        let now = now.map(|(tenant, location)| (tenant, Some(location)));
        let before = self.before.iter().flatten().filter(move |_| stand == Stand::Before);
        let all = now.chain(before.map(|tenant| (tenant, None)));
        all.flat_map(|(tenant, location)| Claim::all(tenant).map(move |claim| (claim, location)))
    }

    /// The problem of a claim of this table that `other` makes too.
    fn problem(&self, claim: Claim<'_>, location: &Location, other: &str) -> Option<Problem> {
        let (key, item, phrase) = match claim {
            Claim::Id(id) => ("id", None, format!("is {}, the id of {other}; write another", quoted(id))),
            Claim::Host(host) => {
                let mut tenants = self.now.iter().flatten();
                let number =
                    tenants.find_map(|(tenant, _)| tenant.hosts.iter().position(|own| own == host))? + 1;
                let host = quoted(&host.to_string());
                let phrase = format!("item {number} is {host}, a host of {other}; write each host once");
                ("hosts", Some(number), phrase)
            }
        };
        Some(Problem::new(location.of_key(key), phrase).at(location.site(key, item, Shown::Always)))
    }
}

/// The files that make a claim, by their place in the list, each with the table that does.
type Claimants<'a> = BTreeMap<usize, Option<&'a Location>>;

/// The version of each file that counts, and the problems of those that don't for what they claim.
pub(in crate::config) fn settle(parties: &[Party]) -> Vec<(Stand, Vec<Problem>)> {
    let first = |party: &Party| match (&party.now, &party.before) {
        (Some(_), Some(_)) if party.is_blocked() => Stand::Before,
        (Some(_), _) => Stand::Now,
        (None, Some(_)) => Stand::Before,
        (None, None) => Stand::Out,
    };
    let mut stands: Vec<(Stand, Vec<Problem>)> =
        parties.iter().map(|party| (first(party), Vec::new())).collect();
    let mut owners: HashMap<Claim<'_>, usize> = HashMap::new();
    let mut claimants: HashMap<Claim<'_>, Claimants<'_>> = HashMap::new();
    for (at, (party, (stand, _))) in parties.iter().zip(&stands).enumerate() {
        owners.extend(party.claims(Stand::Before).map(|(claim, _)| (claim, at)));
        for (claim, place) in party.claims(*stand) {
            claimants.entry(claim).or_default().insert(at, place);
        }
    }
    let mut contested: Vec<Claim<'_>> =
        claimants.iter().filter(|(_, who)| who.len() > 1).map(|(claim, _)| *claim).collect();
    // Each round refuses at least one file, and each file is refused once.
    while !contested.is_empty() {
        contested.sort_unstable();
        contested.dedup();
        let mut refused = BTreeSet::new();
        for claim in contested.drain(..) {
            let Some(who) = claimants.get(&claim).filter(|who| who.len() > 1) else { continue };
            let main = who.keys().find(|at| parties.get(**at).is_some_and(|party| party.is_main));
            let keeper = owners.get(&claim).filter(|at| who.contains_key(at)).or(main);
            for (at, place) in who.iter().filter(|(at, _)| Some(*at) != keeper) {
                let (Some(party), Some((stand, problems))) = (parties.get(*at), stands.get_mut(*at)) else {
                    continue;
                };
                if *stand != Stand::Now {
                    continue;
                }
                refused.insert(*at);
                let other = keeper.or_else(|| who.keys().find(|other| *other != at));
                let other = other.filter(|_| problems.len() < PROBLEMS_MAX).zip(*place);
                problems.extend(other.and_then(|(other, place)| {
                    let name = who.get(other).copied().flatten().map(Location::of_table);
                    let name = name.or_else(|| parties.get(*other).map(|party| &*party.name));
                    party.problem(claim, place, name.unwrap_or_default())
                }));
            }
        }
        for at in refused {
            let (Some(party), Some((stand, _))) = (parties.get(at), stands.get_mut(at)) else { continue };
            for (claim, _) in party.claims(Stand::Now) {
                claimants.entry(claim).or_default().remove(&at);
            }
            *stand = if party.before.is_some() { Stand::Before } else { Stand::Out };
            for (claim, place) in party.claims(*stand) {
                claimants.entry(claim).or_default().insert(at, place);
                contested.push(claim);
            }
        }
    }
    stands
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::{Party, Stand, settle};
    use crate::config::document::Document;
    use crate::config::location::Location;
    use crate::config::problem::Problem;
    use crate::domain::fixture;
    use crate::domain::host::HostPattern;
    use crate::domain::tenant::Tenant;

    /// A tenant with an id and some hosts, "a h1 h2"; nothing: none.
    fn version(text: &str) -> Option<Vec<Arc<Tenant>>> {
        let (id, hosts) = text.split_once(' ')?;
        let hosts = hosts.split(' ').map(|host| HostPattern::parse(host).unwrap()).collect();
        Some(vec![Arc::new(Tenant { id: id.into(), hosts, ..fixture::tenant() })])
    }

    /// Files as they were and are; one that begins with ! can't be served.
    fn stands(files: &[[&str; 2]]) -> Vec<Stand> {
        let location = || Location::of_file(Document::new(Path::new("f"), ""), Some("f"));
        let party = |[before, now]: &[&str; 2]| Party {
            name: "f".into(),
            is_main: false,
            now: version(now.trim_start_matches('!'))
                .map(|tenants| tenants.into_iter().map(|tenant| (tenant, location())).collect()),
            problems: now.starts_with('!').then(|| Problem::new("f", "")).into_iter().collect(),
            before: version(before),
        };
        let parties: Vec<Party> = files.iter().map(party).collect();
        let forward: Vec<Stand> = settle(&parties).into_iter().map(|(stand, _)| stand).collect();
        let parties: Vec<Party> = files.iter().rev().map(party).collect();
        let mut backward: Vec<Stand> = settle(&parties).into_iter().map(|(stand, _)| stand).collect();
        backward.reverse();
        assert_eq!(forward, backward, "the order of files counts for nothing");
        forward
    }

    #[test]
    fn the_file_in_force_keeps_its_host_and_of_newcomers_none_has_it() {
        use Stand::{Before, Now, Out};
        for (files, expected) in [
            // Nobody claims what another does, also where a host changes hands.
            (&[["a x", "a y"], ["b y", "b x"]][..], &[Now, Now][..]),
            (&[["a x", "a x y"], ["", "b x"]], &[Now, Out]),
            (&[["a x", ""], ["", "b x"]], &[Before, Out]),
            (&[["a x", "a z"], ["", "b x"]], &[Now, Now]),
            (&[["b y", "b y x"], ["a x", "a x"]], &[Before, Now]),
            (&[["", "a x"], ["", "b x"]], &[Out, Out]),
            (&[["", "a x"], ["", "b x y"], ["", "c y"]], &[Out, Out, Out]),
            (&[["", "a x"], ["", "a y"]], &[Out, Out]),
            // One that can't be served claims its host all the same, and its former version serves.
            (&[["", "!a x"], ["", "b x"]], &[Out, Out]),
            (&[["a y", "!a x"], ["", "b x"]], &[Before, Now]),
            // A refused file takes back what it would have given up.
            (&[["a x", "a y"], ["b y", "b y"], ["", "c x"]], &[Before, Now, Out]),
            (&[["a x", "a y"], ["b y", "b z"], ["c z", "c z"]], &[Before, Before, Now]),
        ] {
            assert_eq!(stands(files), expected, "{files:?}");
        }
    }
}
