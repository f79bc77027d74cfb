//! The name of the service in the types of changes of keys.

use super::authz::warnings;
use super::{errors, minimal_with, parse};
use crate::config::ConfigReport;

#[test]
fn types_of_their_own_need_a_name_of_the_service_and_a_name_that_is_not_signed_is_warned_of() {
    let with = |keys: &[(&str, &str)]| parse(&minimal_with(keys), &[]);
    let own = ("signature.key_operations", "\"own_types\"");
    let (name, url) =
        (("signature.service_name", "\"Hafen 東京\""), ("keys.public_url", "\"https://verify.example/x/\""));
    assert_eq!(
        errors(&with(&[own]).unwrap_err()),
        [
            "signature.service_name: is empty, and so is keys.public_url; signature.key_operations = \"own_types\" needs a name of this service's own"
        ]
    );
    for (keys, named) in [
        (&[own, url][..], Some("https://verify.example/x")),
        (&[own, name], Some("Hafen 東京")),
        (&[own, url, name], Some("Hafen 東京")),
        (&[url], None),
        (&[name], None),
    ] {
        assert_eq!(with(keys).unwrap().key_service(), named, "{keys:?}");
    }
    let survey = ConfigReport::of_text(&minimal_with(&[name]), std::iter::empty(), 0);
    let warned = survey.problems.0.iter().map(ToString::to_string).any(|warning| {
        warning
            == "signature.service_name: is not signed; signature.key_operations = \"own_types\" has it signed"
    });
    assert!(warned, "{:?}", survey.problems);
}

#[test]
fn contracts_alone_sign_for_longer_and_nonces_are_kept_for_as_long() {
    let with = |keys: &[(&str, &str)]| {
        let name = ("signature.service_name", "\"Hafen\"");
        let found =
            parse(&minimal_with(&[&[("signature.contract_max_age", "\"24h\""), name], keys].concat()), &[]);
        found
            .map(|settings| settings.fixed.signature.contract_max_age.as_secs())
            .map_err(|problems| errors(&problems))
    };
    let (own, contracts) = (("signature.key_operations", "\"own_types\""), ("signature.contracts", "true"));
    let kept = |text| ("signature.nonce_retention", text);
    assert_eq!(with(&[own, contracts, kept("\"24h 1m\"")]), Ok(86_400));
    assert_eq!(
        with(&[own, contracts, kept("\"24h 59s\"")]).unwrap_err(),
        [
            "signature.nonce_retention: nonce_retention is 1day 59s, shorter than contract_max_age and max_ahead together; write at least 1day 1m"
        ]
    );
    for keys in [&[own][..], &[contracts], &[own, contracts]] {
        let name = ("signature.service_name", "\"Hafen\"");
        let older = [("signature.contract_max_age", "\"6m\""), name];
        let lines = warnings(&[&older, keys]).into_iter();
        let warned =
            lines.filter(|line| line.starts_with("signature.contract_max_age: is for changes")).count();
        assert_eq!(warned, usize::from(keys.len() < 2), "{keys:?}");
    }
}

// threat: What is signed for another service is sent on to us
#[test]
fn a_tenant_that_lets_signatures_count_for_hosts_below_another_is_warned_unless_it_lists_them() {
    let warned = |more: &[(&'static str, &'static str)]| {
        let keys = [
            ("listen.gateway", "[\"127.0.0.1:8090\"]"),
            ("tenants[1].id", "\"acme\""),
            ("tenants[1].upstreams", "[\"127.0.0.1:9000\"]"),
        ];
        let lines = warnings(&[&keys, more]).into_iter();
        lines.filter(|line| line.starts_with("tenants[1].hosts: let what is signed")).count()
    };
    let below = ("tenants[1].hosts", "[\"api.example\", \"*.example\"]");
    let signed = ("tenants[1].credentials", "[\"erc8128\"]");
    assert_eq!(warned(&[below, signed]), 1);
    assert_eq!(warned(&[below]), 0);
    assert_eq!(warned(&[("tenants[1].hosts", "[\"api.example\"]"), signed]), 0);
    assert_eq!(warned(&[below, signed, ("tenants[1].signed_hosts", "[\"*.example\"]")]), 0);
}

#[test]
fn a_tenant_with_signed_requests_is_warned_where_nonces_are_kept_for_less_than_these_may_be_good() {
    let warned = |credentials: &str, retention: &str| {
        let keys = [
            ("signature.max_age", "\"60s\""),
            ("signature.nonce_retention", retention),
            ("listen.gateway", "[\"127.0.0.1:8090\"]"),
            ("tenants[1].id", "\"acme\""),
            ("tenants[1].hosts", "[\"api.acme.example\"]"),
            ("tenants[1].upstreams", "[\"127.0.0.1:9000\"]"),
            ("tenants[1].credentials", credentials),
        ];
        warnings(&[&keys]).into_iter().filter(|line| line.starts_with("tenants[1]")).collect::<Vec<_>>()
    };
    let expected = "tenants[1].credentials: take requests that are signed for a minute, which are refused: write at least \
                    max_ahead and 90s for signature.nonce_retention";
    for kind in ["[\"erc8128\"]", "[\"api_key\", \"erc8128_untagged\"]"] {
        assert_eq!(warned(kind, "\"149s\""), [expected]);
        assert_eq!(warned(kind, "\"150s\""), Vec::<String>::new());
    }
    assert_eq!(warned("[\"api_key\", \"signature\"]", "\"149s\""), Vec::<String>::new());
}
