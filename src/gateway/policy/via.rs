//! `Via` (RFC 9110, section 7.6.3): each gateway that forwards a request adds its name, and refuses a request that has its
//! name already. Otherwise a gateway whose upstream leads back to it would forward to itself without end.

use crate::http1::{Fields, Lines, name::Name};
use crate::wire::RequestIds;

/// The gateway's name in `Via`.
pub(in crate::gateway) struct Via(Box<str>);

impl Via {
    /// Under the configured name; else one that no other process has.
    pub(in crate::gateway) fn new(configured: Option<Box<str>>, ids: &RequestIds) -> Self {
        Self(configured.unwrap_or_else(|| format!("tiergate-{}", ids.process).into()))
    }

    /// True if a request has passed a gateway of this name.
    pub(in crate::gateway) fn has_passed(&self, fields: &impl Fields) -> bool {
        let name = self.0.as_bytes();
        let hops = fields.values(Name::Via).flat_map(|line| line.split(|byte| *byte == b','));
        // Behind a protocol and a blank.
        let mut hops = hops.filter(|hop| hop.len() > name.len() + 1);
        hops.any(|hop| received_by(hop).is_some_and(|other| other.eq_ignore_ascii_case(name)))
    }

    /// Adds this gateway to those that a request of this version of HTTP has passed.
    pub(in crate::gateway) fn write(&self, fields: &impl Fields, version: &str, lines: &mut impl Lines) {
        lines.line("Via", |out| {
            for line in fields.values(Name::Via).filter(|line| !line.is_empty()) {
                out.extend_from_slice(line);
                out.extend_from_slice(b", ");
            }
            [version, " ", &self.0].into_iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        });
    }
}

/// The name in one element: what follows the protocol.
fn received_by(hop: &[u8]) -> Option<&[u8]> {
    hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::Via;

    fn of(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (http::header::VIA, line.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_that_passed_this_name_is_told_from_all_others() {
        let via = Via("inner".into());
        for passed in [
            vec!["1.1 inner"],
            vec!["HTTP/2.0 INNER"],
            vec!["1.0 edge, 1.1\tinner (it)"],
            vec!["1.1 edge", "1.1 x,,2.0  inner"],
        ] {
            assert!(via.has_passed(&of(&passed)), "{passed:?}");
        }
        for other in [
            vec![],
            vec![""],
            vec!["inner"],
            vec!["1.1 inner-2"],
            vec!["1.1 edge (inner)"],
            vec!["1.1 edge inner"],
        ] {
            assert!(!via.has_passed(&of(&other)), "{other:?}");
        }
    }

    #[test]
    fn a_name_is_added_behind_those_that_are_there() {
        for (there, expected) in [
            (vec![], "1.1 inner"),
            (vec![""], "1.1 inner"),
            (vec!["1.0 a, 1.1 b", "2.0 c"], "1.0 a, 1.1 b, 2.0 c, 1.1 inner"),
        ] {
            let mut lines = HeaderMap::new();
            Via("inner".into()).write(&of(&there), "1.1", &mut lines);
            assert_eq!(lines["via"], expected);
        }
    }
}
