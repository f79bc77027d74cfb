//! Texts of nodes as they may be shown: cut, printable, and without anything that might be part of a URL or header.
//! Providers put keys there, and nodes and gateways quote them.

use std::collections::BTreeSet;

use url::Url;
use url::form_urlencoded;

/// The longest text that is kept, in characters before escaping.
const TEXT_CHARS_MAX: usize = 120;

/// The longest word that is kept, in characters. Keys and their encodings are longer, words of a language are not.
const WORD_CHARS_MAX: usize = 32;

/// A part of a URL that is at least this long, in bytes, is looked for inside of words too.
const PART_INSIDE_WORDS_BYTES_MIN: usize = 4;

/// Stands in the place of a word that is left out.
const LEFT_OUT: &str = "…";

/// The parts of one node's URL, and of what is sent with calls to it, that nobody may see, in lower case.
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    /// The parts of user info, path and query, as they are written and decoded, and the words of these texts.
    pub(super) fn of(url: &Url, texts: impl Iterator<Item = String>) -> Self {
        let written =
            [url.username(), url.password().unwrap_or_default(), url.path(), url.query().unwrap_or_default()];
        let parts = written.iter().flat_map(|part| part.split(['/', '&', '=']));
        let decoded = parts.clone().flat_map(|part| form_urlencoded::parse(part.as_bytes()));
        let all = parts.map(str::to_owned).chain(decoded.map(|(name, _)| name.into_owned())).chain(texts);
        let words: Vec<String> =
            all.flat_map(|text| text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>()).collect();
        Self(words.into_iter().filter(|word| word.contains(char::is_alphanumeric)).collect())
    }

    /// The text without what may be secret.
    pub(super) fn strip(&self, text: &str) -> String {
        let mut words: Vec<_> =
            text.split_whitespace().map(|word| if self.may_show(word) { word } else { LEFT_OUT }).collect();
        words.dedup_by(|next, last| *next == LEFT_OUT && *last == LEFT_OUT);
        words.join(" ").chars().take(TEXT_CHARS_MAX).flat_map(char::escape_debug).collect()
    }

    fn may_show(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let has_piece =
            |part: &str| word.split(|char: char| !char.is_alphanumeric()).any(|piece| piece == part);
        word.chars().take(WORD_CHARS_MAX + 1).count() <= WORD_CHARS_MAX
            && !word.contains(['/', '\\', '?', '&', '=', '@', '%'])
            && !self.0.iter().any(|part| {
                if part.len() < PART_INSIDE_WORDS_BYTES_MIN { has_piece(part) } else { word.contains(part) }
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use url::Url;

    use super::{LEFT_OUT, Secrets, TEXT_CHARS_MAX};

    fn strip(url: &str, text: &str) -> String {
        Secrets::of(&Url::parse(url).unwrap(), std::iter::empty()).strip(text)
    }

    #[test]
    fn no_part_of_the_url_is_left_however_it_is_quoted() {
        let url = "https://bob:pa%20ss@node.example/v3/0a1B2c3d4e5f/x?apikey=T0KEN&n=ab";
        for text in [
            url,
            "no route for /v3/0a1B2c3d4e5f/x",
            "project '0a1b2c3d4e5f' is suspended",
            "project0A1B2C3D4E5Fsuspended",
            "bob is not allowed, v3 is old",
            "user:bob,pa ss",
            "query n ab",
            "query was:apikey,T0KEN;",
            "{\"apikey\":\"T0KEN\"}",
        ] {
            let shown = strip(url, text).to_lowercase();
            for secret in ["bob", "pa%20ss", "0a1b2c3d4e5f", "v3", "apikey", "t0ken", " ab", "/x"] {
                assert!(!shown.contains(secret), "{secret} in {shown:?} of {text:?}");
            }
        }
    }

    #[test]
    fn what_is_sent_in_headers_is_not_left_either() {
        let url = Url::parse("https://node.example/").unwrap();
        let sent = ["Bearer tok.EN-1", "k3y"].map(str::to_owned);
        let secrets = Secrets::of(&url, sent.into_iter());
        for text in ["bad key k3y", "tok.en-1 is over", "header was:'Bearer tok.EN-1'", "x=k3y", "KEY:K3Y"] {
            let shown = secrets.strip(text).to_lowercase();
            assert!(!shown.contains("k3y") && !shown.contains("tok.en-1"), "{shown}");
        }
    }

    #[test]
    fn what_says_why_is_left() {
        let url = "https://node.example/v2/0a1b2c3d4e5f";
        for text in [
            "daily request count exceeded, request rate limited",
            "header not found",
            "execution aborted (timeout: 5s)",
        ] {
            assert_eq!(strip(url, text), text);
        }
        assert_eq!(
            strip(url, "see https://a.example/b and /c: it is over"),
            format!("see {LEFT_OUT} and {LEFT_OUT} it is over")
        );
    }

    #[test]
    fn a_text_is_short_and_on_one_line() {
        let shown =
            strip("http://node.example/", &format!("first\nsecond\r\u{1b}[31m\0 {}", "word ".repeat(99)));
        assert!(shown.starts_with("first second \\u{1b}[31m\\0 word"), "{shown}");
        assert!(shown.chars().count() < 2 * TEXT_CHARS_MAX);
    }

    proptest! {
        #[test]
        fn a_key_in_the_path_is_never_left(
            key in "[A-Za-z0-9_-]{4,40}", before in any::<String>(), after in any::<String>()
        ) {
            let secrets = Secrets::of(&Url::parse(&format!("https://node.example/{key}")).unwrap(), std::iter::empty());
            let others = (before.to_lowercase() + &after.to_lowercase()).contains(&key.to_lowercase());
            let shown = secrets.strip(&format!("{before}{key}{after}"));
            prop_assert!(others || !shown.contains(&key), "{}", shown);
        }
    }
}
