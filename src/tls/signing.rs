//! The keys that sign assertions: P-256, from a PEM file, with their public parts. The private ones are in no `Debug`.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, Signature};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::files::{self, SECRET_BYTES_MAX};
use crate::tls::pem::MALFORMED;

/// The keys of a file. The first one signs.
pub(crate) struct SigningKeys {
    signer: EcdsaKeyPair,
    random: SystemRandom,
    /// The public parts of all, in the order of the file.
    pub(crate) published: Vec<PublicKey>,
}

/// The public part of a key, as a JWK has it (RFC 7518, section 6.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    /// The thumbprint (RFC 7638).
    pub(crate) kid: String,
    pub(crate) x: String,
    pub(crate) y: String,
}

impl SigningKeys {
    /// The signature of the first key, as a JWS has it (RFC 7518, section 3.4); `None` without randomness.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Signature> {
        self.signer.sign(&self.random, message).ok()
    }
}

/// Reads the keys of a file. A problem has the file's path in front.
pub(super) fn load(path: &Path) -> Result<SigningKeys, String> {
    let keys = files::bytes(path, SECRET_BYTES_MAX).and_then(|text| parse(&text));
    keys.map_err(|problem| format!("{}: {problem}", files::shown(path)))
}

fn parse(text: &[u8]) -> Result<SigningKeys, String> {
    if text.windows(9).any(|word| word == b"ENCRYPTED") {
        return Err("holds an encrypted key".to_owned());
    }
    let random = SystemRandom::new();
    let (mut pairs, mut published) = (Vec::new(), Vec::new());
    for (key, number) in PrivateKeyDer::pem_slice_iter(text).zip(1_usize..) {
        let pair = pair(&key.map_err(|_| MALFORMED)?, &random);
        let pair = pair.ok_or(format!("key {number} is not for P-256, or has no public part"))?;
        let public = PublicKey::of(&pair).ok_or(MALFORMED)?;
        if published.contains(&public) {
            return Err(format!("key {number} stands there twice"));
        }
        pairs.push(pair);
        published.push(public);
    }
    let signer = pairs.into_iter().next().ok_or("holds no private key")?;
    Ok(SigningKeys { signer, random, published })
}

fn pair(key: &PrivateKeyDer<'_>, random: &SystemRandom) -> Option<EcdsaKeyPair> {
    let parse = |der: &[u8]| EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random).ok();
    if let PrivateKeyDer::Sec1(key) = key {
        return parse(&pkcs8_of(key.secret_sec1_der())?);
    }
    // A key of another form is none in this one.
    parse(key.secret_der())
}

/// A key of SEC1 in the form of PKCS#8 (RFC 5208): version 0, the algorithm, and the key itself.
fn pkcs8_of(sec1: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    const VERSION_AND_P256: &[u8] =
        b"\x02\x01\0\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    // Keys for P-256 take 121 bytes at most; the lengths of others would not fit.
    let key = u8::try_from(sec1.len()).ok().filter(|length| *length < 128)?;
    let whole = u8::try_from(VERSION_AND_P256.len() + 2 + sec1.len()).ok()?;
    let mut out = Zeroizing::new(Vec::with_capacity(256));
    for part in [&[0x30, 0x81, whole], VERSION_AND_P256, &[0x04, key], sec1] {
        out.extend_from_slice(part);
    }
    Some(out)
}

impl PublicKey {
    fn of(pair: &EcdsaKeyPair) -> Option<Self> {
        // A point that is not compressed: 4, then both coordinates.
        let coordinates = pair.public_key().as_ref().get(1..)?;
        let (x, y) = coordinates.split_at_checked(32)?;
        let [x, y] = [x, y].map(|coordinate| URL_SAFE_NO_PAD.encode(coordinate));
        let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        Some(Self { kid: URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)), x, y })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::{SECRET_BYTES_MAX, SigningKeys, URL_SAFE_NO_PAD, load, parse};
    use crate::tls::fixture::Folder;
    use base64::Engine;

    /// The key of RFC 7515, appendix A.3, as OpenSSL writes it in PKCS#8 and in SEC1.
    const PKCS8: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjpsQnnGQmL+YBIff
H1136cspYG6+0iY7X1fCE9+E9LKhRANCAAR/zc4ncPbEXUGDy+5v20t7WAczNXvp
7xO6z248e9FURcfxRM0bvZt+hyzf7bnuufSzaV1uqQskrYpGIyiFiOWt
-----END PRIVATE KEY-----
";
    const SEC1: &str = "-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEII6bEJ5xkJi/mASH3x9dd+nLKWBuvtImO19XwhPfhPSyoAoGCCqGSM49
AwEHoUQDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEXH8UTNG72b
focs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==
-----END EC PRIVATE KEY-----
";

    fn is_signed_by(keys: &SigningKeys, number: usize) -> bool {
        let public = &keys.published[number];
        let point = [&public.x, &public.y].map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
        let point = [&[4], &*point[0], &*point[1]].concat();
        let signature = keys.sign(b"message").unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(b"message", signature.as_ref()).is_ok()
    }

    #[test]
    fn both_forms_of_a_key_are_one_key_with_the_thumbprint_that_a_jose_library_computes() {
        for text in [PKCS8, SEC1] {
            let keys = parse(text.as_bytes()).ok().unwrap();
            let [key] = keys.published.as_slice() else { panic!("{:?}", keys.published) };
            assert_eq!(key.x, "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
            assert_eq!(key.y, "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
            assert_eq!(key.kid, "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U");
            assert!(is_signed_by(&keys, 0));
        }
    }

    #[test]
    fn the_first_of_several_keys_signs_and_all_are_published_in_their_order() {
        let [one, two] = [(), ()].map(|()| KeyPair::generate().unwrap().serialize_pem());
        let both = |text: String| parse(text.as_bytes()).ok().unwrap();
        let (before, after) = (both(format!("{one}{SEC1}{two}")), both(format!("{two}{one}")));
        assert_eq!(before.published.len(), 3);
        assert!(before.published[0] == after.published[1] && before.published[2] == after.published[0]);
        assert!(is_signed_by(&before, 0) && !is_signed_by(&before, 1) && is_signed_by(&after, 0));
    }

    // threat: A key of assertions is exchanged, broken or written down
    #[test]
    fn a_file_that_holds_anything_but_keys_for_p256_is_named_and_nothing_of_it_shown() {
        let folder = Folder::new();
        let [ed25519, p384] = [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384]
            .map(|kind| KeyPair::generate_for(kind).unwrap().serialize_pem());
        let other = "is not for P-256, or has no public part";
        for (text, problem) in [
            (String::new(), "holds no private key".to_owned()),
            (
                "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned(),
                "holds no private key".to_owned(),
            ),
            (PKCS8.replace("PRIVATE", "ENCRYPTED PRIVATE") + SEC1, "holds an encrypted key".to_owned()),
            (format!("{PKCS8}{ed25519}"), format!("key 2 {other}")),
            (p384, format!("key 1 {other}")),
            (PKCS8.replace("MIGH", "MIGG"), format!("key 1 {other}")),
            (SEC1.replace("MHcC", "MHcD"), format!("key 1 {other}")),
            (PKCS8.replace("MIGH", "MI~~"), "is not well-formed PEM".to_owned()),
            (format!("{PKCS8}{SEC1}"), "key 2 stands there twice".to_owned()),
            (" ".repeat(SECRET_BYTES_MAX + 1), "is longer than 16384 bytes".to_owned()),
        ] {
            let path = folder.write("keys.pem", &text);
            assert_eq!(load(&path).err().unwrap(), format!("{}: {problem}", path.display()));
        }
    }
}
