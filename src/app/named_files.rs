//! The files that keys of a configuration name, looked into one by one, whatever is wrong elsewhere. Blocks.
//!
//! Must not say what is in them.

use std::path::Path;

use crate::config::{Content, NamedFile, Problem, Settings};
use crate::domain::{KeyPair, Secret, SecretSource, UnixSeconds, rpc_url::header_value};
use crate::files;
use crate::gateway::TenantSecret;
use crate::tls::FileLoader;

/// The shortest secret of another gateway, as the problem of a shorter one says.
const AUTHZ_SECRET_BYTES_MIN: usize = 16;

/// Everything for which a file, or a certificate and its key, can't be used.
pub(crate) fn errors(named: &NamedFile, loader: &mut FileLoader<'_>) -> Vec<Problem> {
    let secret = |path: &Path| files::secret_in(path).map_err(|why| vec![with_path(path, why)]);
    let read = match &named.content {
        Content::Pair(pair) => loader.identity(pair).map(drop),
        Content::Shown(..) => Ok(()),
        Content::Authorities(path) => loader.authorities(path).map(drop),
        Content::SigningKeys(path) => loader.signing_keys(path).map(drop),
        Content::Agents(path) => loader.agents(path).map(drop),
        Content::Secret(path) => secret(path).map(drop),
        Content::HeaderValue(path) => secret(path).and_then(|text| {
            let unfit = |why| vec![with_path(path, format!("can't be sent: {why}"))];
            header_value(text.reveal()).map(drop).map_err(unfit)
        }),
    };
    // A problem begins with the path of its file, which the second key names.
    let is_of =
        |KeyPair { key, .. }: &KeyPair, phrase: &str| phrase.starts_with(&format!("{}: ", files::shown(key)));
    let number =
        |phrase: &str| usize::from(matches!(&named.content, Content::Pair(pair) if is_of(pair, phrase)));
    let phrases = read.err().unwrap_or_default();
    phrases.iter().filter_map(|phrase| named.problem(number(phrase), phrase)).collect()
}

/// Everything about certificates that were read that works and is probably not meant.
pub(crate) fn warnings(named: &NamedFile, now: UnixSeconds, loader: &FileLoader<'_>) -> Vec<Problem> {
    let (pair, hosts) = match &named.content {
        Content::Pair(pair) => (pair, None),
        Content::Shown(pair, hosts) => (pair, Some(hosts)),
        Content::Authorities(_)
        | Content::SigningKeys(_)
        | Content::Agents(_)
        | Content::Secret(_)
        | Content::HeaderValue(_) => return Vec::new(),
    };
    // Others are not read, or have other problems.
    let Some(identity) = loader.read_identity(pair) else { return Vec::new() };
    let untimely = identity.untimely(now).filter(|_| hosts.is_none()).map(str::to_owned);
    let others = hosts.into_iter().flatten().filter(|host| !identity.is_for(host));
    let phrases = untimely.into_iter().chain(others.map(|host| format!("is not for the host {host}")));
    let file = files::shown(&pair.cert);
    let phrases = phrases.map(|phrase| format!("{file}: the certificate {phrase}"));
    phrases.filter_map(|phrase| Some(named.problem(0, &phrase)?.as_warning())).collect()
}

/// The secrets of other gateways in a file, whose lines are `secret` or `tenant:secret`. One that is short, or that no header
/// carries, is meant otherwise. A problem has the file's path in front.
pub(crate) fn tenant_secrets(
    path: &Path,
    is_tenant: impl Fn(&str) -> bool,
) -> Result<Vec<TenantSecret>, String> {
    let read = |(at, line): (usize, &str)| {
        let (tenant, secret) = line.split_once(':').map_or((None, line), |(id, secret)| (Some(id), secret));
        let is_visible = secret.bytes().all(|byte| byte.is_ascii_graphic());
        let is_good = is_visible && secret.len() >= AUTHZ_SECRET_BYTES_MIN && tenant.is_none_or(&is_tenant);
        let wanted =
            "a secret of 16 or more visible ASCII characters, nor `tenant:secret` with a tenant's id";
        let problem = || format!("{}: line {} is neither {wanted}", files::shown(path), at + 1);
        is_good.then(|| (tenant.map(Into::into), Secret::new(secret))).ok_or_else(problem)
    };
    let text = files::secret(&SecretSource::File(path.to_owned()))?;
    text.reveal().lines().enumerate().filter(|(_, line)| !line.is_empty()).map(read).collect()
}

/// The first line of `authz.secret_file` that opens nothing, as no tenant has its id: other tools may still write the tenant.
pub(crate) fn unused_secret(settings: &Settings) -> Option<Problem> {
    let path = settings.fixed.authz.secret_file.as_deref().filter(|path| files::secret_in(path).is_ok())?;
    let is_tenant = |id: &str| settings.live.tenants.iter().any(|tenant| &*tenant.id == id);
    Some(Problem::new("authz.secret_file", tenant_secrets(path, is_tenant).err()?))
}

/// The problem of a secret's file, with its path if that is one for certain: the file is there, or its folder is. A
/// password is easily written under the key of its file, and must not be shown then.
fn with_path(path: &Path, why: String) -> String {
    let folder = path.parent().filter(|folder| folder.parent().is_some());
    let is_path = path.symlink_metadata().is_ok() || folder.is_some_and(Path::is_dir);
    if is_path { format!("{}: {why}", path.display()) } else { why }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{tenant_secrets, with_path};

    #[test]
    fn a_line_of_other_gateways_secrets_that_can_be_meant_otherwise_is_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            tenant_secrets(&path, |id| id == "acme")
        };
        for (good, count) in
            [("0123456789abcdef", 1), ("acme:0123456789:abcdef\r\n\n\n0123456789abcdef\n", 2)]
        {
            assert_eq!(read(good).unwrap().len(), count, "{good:?}");
        }
        for (secrets, line) in [
            ("acem:0123456789abcdef", 1),
            ("0123456789abcdef\n\nACME:0123456789abcdef", 3),
            ("acme:0123456789abcde", 1),
            ("0123456789abcde", 1),
            ("acme:0123456789abcdef\nacme:", 2),
            ("acme: 0123456789abcdef", 1),
            ("acme :0123456789abcdef", 1),
            ("acme 0123456789abcdef", 1),
            ("0123456789abcdef \n", 1),
            ("0123456789abcd\u{e9}f", 1),
            (":0123456789abcdef", 1),
            (":", 1),
            (" \n0123456789abcdef", 1),
            ("# secrets of acme\n0123456789abcdef", 1),
        ] {
            let said = read(secrets).unwrap_err();
            let said = said.strip_prefix(path.to_str().unwrap()).unwrap();
            assert!(said.starts_with(&format!(": line {line} is neither")), "{secrets:?}: {said}");
            assert!(!["0123", "acme", "acem"].iter().any(|part| said.contains(part)), "{secrets:?}: {said}");
        }
    }

    #[test]
    fn the_path_of_a_secrets_file_is_shown_and_a_password_in_its_place_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let shown = with_path(&absent, "can't be read".to_owned());
        assert_eq!(shown, format!("{}: can't be read", absent.display()));
        for password in ["5ecret", "/5ecret", "/5/ecret", "5ecret/x", "", "//5ecret"] {
            assert_eq!(with_path(Path::new(password), "why".to_owned()), "why", "{password}");
        }
    }
}
