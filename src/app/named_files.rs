//! The files that keys of a configuration name, looked into one by one, whatever is wrong elsewhere. Blocks.
//!
//! Must not say what is in them.

use std::path::Path;

use crate::config::{Content, NamedFile, Problem, Settings};
use crate::domain::{KeyPair, Secret, SecretSource, UnixSeconds, UpstreamTls, rpc_header};
use crate::files;
use crate::gateway::TenantSecret;
use crate::tls::{FileLoader, LoadedFiles, UpstreamIdentity, pem};

/// The shortest secret of another gateway, as the problem of a shorter one says.
const AUTHZ_SECRET_BYTES_MIN: usize = 16;

/// Everything that is wrong with a file, or with a certificate and its key, and looks so.
pub(crate) fn problems(named: &NamedFile, now: UnixSeconds) -> Vec<Problem> {
    let load = |ca, client| {
        let rules = UpstreamTls { ca, client, server_name: None };
        let files = LoadedFiles::default();
        UpstreamIdentity::load(&rules, &mut FileLoader::new(&files, now)).err().unwrap_or_default()
    };
    let (errors, warnings) = match &named.content {
        // The clients of upstreams and of Redis ask more of a pair than listeners do.
        Content::Pair(pair) => {
            (load(None, Some(pair.clone())), pem::untimely(pair, now).into_iter().collect())
        }
        Content::Shown(pair, hosts) => (Vec::new(), pem::other_hosts(pair, hosts)),
        Content::Authorities(path) => (load(Some(path.clone()), None), Vec::new()),
        Content::SigningKeys(path) => {
            let files = LoadedFiles::default();
            let read = FileLoader::new(&files, now).signing_keys(path);
            (read.err().unwrap_or_default(), Vec::new())
        }
        Content::Agents(path) => (files::agents(path).err().into_iter().collect(), Vec::new()),
        Content::Secret(path) => {
            let wrong = files::secret_in(path).err().map(|why| with_path(path, why));
            (wrong.into_iter().collect(), Vec::new())
        }
        Content::HeaderValue(path) => {
            let unfit = |why| format!("can't be sent: {why}");
            let sendable =
                files::secret_in(path).and_then(|text| rpc_header::value(text.reveal()).map_err(unfit));
            (sendable.err().map(|why| with_path(path, why)).into_iter().collect(), Vec::new())
        }
    };
    let errors =
        errors.into_iter().filter_map(|phrase| named.problem(key_of(&named.content, &phrase), &phrase));
    let warnings = warnings.into_iter().filter_map(|phrase| Some(named.problem(0, &phrase)?.as_warning()));
    errors.chain(warnings).collect()
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

/// The number of the key that names the file of this problem, which begins with the file's path.
fn key_of(content: &Content, phrase: &str) -> usize {
    let is_of = |KeyPair { key, .. }: &KeyPair| phrase.starts_with(&format!("{}: ", files::shown(key)));
    usize::from(matches!(content, Content::Pair(pair) if is_of(pair)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::with_path;

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
