//! What `details.received` may show: what came in, cut short, and never a whole API key or signature.

use serde_json::Value;
use serde_json::value::RawValue;

/// The longest text that is echoed, in characters.
pub(crate) const RECEIVED_CHARS_MAX: usize = 100;

/// The longest echo of a field that should hold a secret, in characters.
const SECRET_CHARS_MAX: usize = 20;

/// Hex characters in a row that may be a key or a signature, whatever the field.
const HEX_RUN_MIN: usize = 64;

/// How much of such a run is shown.
const HEX_RUN_SHOWN: usize = 8;

/// The sign that stands for the rest.
const CUT: char = '…';

/// The echo of a JSON value: texts cut, numbers, booleans and null as they are, the rest as cut JSON text.
pub(crate) fn echo(raw: Option<&RawValue>, holds_secret: bool) -> Value {
    let Some(raw) = raw else { return Value::Null };
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => Value::String(echo_text(&text, holds_secret)),
        Ok(scalar @ (Value::Null | Value::Bool(_) | Value::Number(_))) => scalar,
        Ok(Value::Array(_) | Value::Object(_)) | Err(_) => Value::String(echo_text(raw.get(), holds_secret)),
    }
}

pub(crate) fn echo_text(text: &str, holds_secret: bool) -> String {
    let most = if holds_secret { SECRET_CHARS_MAX } else { RECEIVED_CHARS_MAX };
    let mut shown = hide_hex_runs(text);
    if let Some((end, _)) = shown.char_indices().nth(most) {
        shown.truncate(end);
        shown.extend(holds_secret.then_some(CUT));
    }
    shown
}

/// Shortens each run of hex characters that is long enough for a key and is not merely a long decimal number.
fn hide_hex_runs(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(4 * RECEIVED_CHARS_MAX));
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (hex, after) = rest.split_at(run);
        let secret = run >= HEX_RUN_MIN && hex.bytes().any(|byte| byte.is_ascii_alphabetic());
        if secret {
            shown.push_str(hex.get(..HEX_RUN_SHOWN).unwrap_or_default());
            shown.push(CUT);
        } else {
            shown.push_str(hex);
        }
        let mut after = after.chars();
        shown.extend(after.next());
        rest = after.as_str();
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use serde_json::{Value, json};

    use super::{CUT, SECRET_CHARS_MAX, echo, echo_text};

    fn raw(json: &str) -> Box<serde_json::value::RawValue> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn texts_are_cut_to_100_characters_and_scalars_come_back_as_they_are() {
        assert_eq!(echo(None, false), Value::Null);
        assert_eq!(echo(Some(&raw("null")), false), Value::Null);
        assert_eq!(echo(Some(&raw("7")), false), json!(7));
        assert_eq!(echo(Some(&raw("true")), false), json!(true));
        assert_eq!(echo(Some(&raw("\"abc\"")), false), json!("abc"));
        assert_eq!(echo(Some(&raw("[1,2]")), false), json!("[1,2]"));
        assert_eq!(echo_text(&"é".repeat(101), false), "é".repeat(100));
        let of_secret = format!("{}{CUT}", "é".repeat(SECRET_CHARS_MAX));
        assert_eq!(echo_text(&"é".repeat(SECRET_CHARS_MAX + 1), true), of_secret);
        assert_eq!(echo_text(&"9".repeat(90), false), "9".repeat(90), "a long number is no secret");
    }

    proptest! {
        #[test]
        fn no_whole_key_or_signature_is_ever_echoed(random in any::<[u8; 65]>(), before in "[a-z\" ]{0,9}", secret_field in any::<bool>()) {
            let hex = alloy::primitives::hex::encode(random);
            let key = &hex[..64];
            proptest::prop_assume!(key.bytes().any(|byte| byte.is_ascii_alphabetic()));
            for text in [format!("{before}svc_live_v1_{key}"), format!("{before}0x{hex}"), format!("{before}{key}{before}")] {
                let shown = echo_text(&text, secret_field);
                prop_assert!(!shown.contains(key), "{shown}");
                let json = serde_json::to_string(&text).unwrap();
                let shown = echo(Some(&raw(&format!("[{json}]"))), secret_field).to_string();
                prop_assert!(!shown.contains(key), "{shown}");
            }
        }
    }
}
