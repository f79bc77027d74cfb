//! Notes each key as it is declared, where somebody wants to know.

use toml::Value;

use super::Reader;
use crate::config::declared::{Declared, Kind};
use crate::config::written::Shown;

impl Reader {
    /// Gives the keys that are asked for next their prose.
    pub(in crate::config) fn about(&mut self, about: &'static str) {
        self.about = (about, 0);
    }

    /// Notes a key.
    pub(super) fn declare(
        &mut self,
        path: &'static str,
        default: Option<&Value>,
        kind: impl FnOnce() -> Kind,
    ) {
        let Some(declared) = &mut self.declared else { return };
        let shown = self.scope.masked.iter().find(|(masked, _)| *masked == path);
        let (about, number) = self.about;
        self.about.1 += 1;
        declared.push(Declared {
            path: path.to_owned(),
            about,
            kind: kind(),
            default: default.cloned(),
            number,
            is_live: self.is_live,
            shown: shown.map_or(Shown::Always, |(_, shown)| *shown),
        });
    }
}
