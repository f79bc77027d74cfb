//! Sources of tiers beside the stake vault: their keys, and which go together.

use alloy::primitives::{Address, U256, address};

use super::bounds::settings;
use super::{MINIMAL, minimal_with, parse, problems, says, warnings};
use crate::domain::{Feedback, Measure, PerTier, Question, Tier, TierSources};

type Keys<'a> = &'a [(&'a str, &'a str)];

const CONTRACT: Address = address!("dc64a140aa3e981100a9becA4e685f962f0cf6c9");
const QUOTED: &str = "'0xdc64a140aa3e981100a9beca4e685f962f0cf6c9'";
const OTHER: &str = "'0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0'";

/// Registries that have wallets and feedback.
const ERC8004: [(&str, &str); 2] = [("chain.registries", "'erc8004'"), ("chain.contracts.reputation", OTHER)];

const ERC20: [(&str, &str); 3] =
    [("tiers.source", "'erc20'"), ("tiers.contract", QUOTED), ("tiers.thresholds", "['1']")];
const CALL: [(&str, &str); 4] = [
    ("tiers.source", "'call'"),
    ("tiers.contract", QUOTED),
    ("tiers.function", "'score(uint256)'"),
    ("tiers.thresholds", "['1']"),
];
const REPUTATION: [(&str, &str); 3] =
    [("tiers.source", "'reputation'"), ("tiers.clients", QUOTED_LIST), ("tiers.thresholds", "['4.5']")];
const QUOTED_LIST: &str = "['0xdc64a140aa3e981100a9beca4e685f962f0cf6c9']";

fn sources(keys: &[Keys<'_>]) -> TierSources {
    settings(&keys.concat()).fixed.tiers.sources
}

fn measures(keys: &[Keys<'_>]) -> Vec<Measure> {
    let TierSources { stakes, measures, list, everyone, tokens } = sources(keys);
    assert_eq!((stakes, list, everyone), (None, None, None));
    assert_eq!(tokens.len(), measures.iter().filter(|measure| measure.source == "erc20").count());
    measures
}

fn units<const COUNT: usize>(thresholds: [u64; COUNT]) -> Vec<U256> {
    thresholds.map(U256::from).into()
}

/// The minimal file with these lines behind it, which are tables.
fn with_tables(lines: &str) -> String {
    format!("{MINIMAL}{lines}")
}

#[test]
fn a_balance_is_the_owners_or_the_wallets_in_the_decimals_of_the_token() {
    let thresholds = ("tiers.thresholds", "['0.5', '0.5', '12']");
    let keys = [&ERC20[..2], &[thresholds, ("tiers.decimals", "1")]];
    let balance = |of_wallet| Question::Balance { of_wallet };
    let measure = |source, question, thresholds| Measure { source, contract: CONTRACT, question, thresholds };
    assert_eq!(measures(&keys), [measure("erc20", balance(false), units([5, 5, 120]))]);
    assert_eq!(sources(&keys).tokens, [(CONTRACT, 1)]);
    let of_wallet = [&ERC8004[..], &ERC20, &[("tiers.of", "'agent_wallet'")]];
    let one_token = units([1_000_000_000_000_000_000]);
    assert_eq!(measures(&of_wallet), [measure("erc20", balance(true), one_token)], "18 decimals");
    let of_owner = [&ERC8004[..], &ERC20, &[("tiers.of", "'owner'")]];
    assert_eq!(measures(&of_owner)[0].question, balance(false));
    let erc721 = [("tiers.source", "'erc721'"), ERC20[1], ("tiers.thresholds", "['1', '3', '3', '10']")];
    assert_eq!(measures(&[&erc721]), [measure("erc721", balance(false), units([1, 3, 3, 10]))]);
    says(
        "",
        r#"
        tiers = { source = 'erc20', contract = '0xdc64a140aa3e981100a9beca4e685f962f0cf6c9', thresholds = ['1'], of = 'agent_wallet' }
        ? chain.contracts.stake_vault: gives no agent its tier; remove it, or make it a source of tiers
        ! tiers: the source "erc20" is of = "agent_wallet", and these registries have no wallets; write "owner"
        tiers = { source = 'erc721', contract = '0xdc64a140aa3e981100a9beca4e685f962f0cf6c9', thresholds = ['1.5'] }
        ! tiers.thresholds: item 1 is "1.5"; …
        "#,
    );
}

#[test]
fn a_function_is_named_by_its_signature_and_told_from_others_by_its_selector() {
    let decimals = [("tiers.decimals", "2"), ("tiers.thresholds", "['0.07']")];
    let question = Question::Call { selector: [0xd1, 0x73, 0x0f, 0x1f] };
    let measure = Measure { source: "call", contract: CONTRACT, question, thresholds: units([7]) };
    assert_eq!(measures(&[&CALL[..3], &decimals]), [measure]);
    assert_eq!(measures(&[&CALL])[0].thresholds, units([1]), "no decimals");
    says(
        "chain.reread_after = '0s'",
        r#"
        tiers = { source = 'call', contract = '0xdc64a140aa3e981100a9beca4e685f962f0cf6c9', function = 'score(uint256)', thresholds = ['1'] }
        ? chain.contracts.stake_vault: gives no agent its tier; …
        ! chain.reread_after: is 0, and the source "call" may tell no change; write a duration
        "#,
    );
}

/// So many clients.
fn clients(count: u8) -> String {
    let all: Vec<_> = (1..=count).map(|byte| format!("'{:?}'", Address::repeat_byte(byte))).collect();
    format!("[{}]", all.join(","))
}

#[test]
fn feedback_counts_by_clients_that_are_listed_and_only_erc8004_has_it() {
    let starred =
        Feedback { clients: vec![CONTRACT], tag: "starred".into(), average_over: None, each: 1_000 };
    let question = |of: &Feedback| Question::Feedback(of.clone());
    let [sum] = &measures(&[&ERC8004, &REPUTATION])[..] else { panic!() };
    assert_eq!((sum.source, &sum.question), ("reputation", &question(&starred)));
    assert_eq!(sum.contract, address!("9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"), "that of the registries");
    assert_eq!(sum.thresholds, units([4_500_000_000_000_000_000]));
    let average = [("tiers.average_over", "1"), ("tiers.tag", "''"), ("chain.feedback_max", "7")];
    let of = Feedback { tag: String::new(), average_over: Some(1), each: 7, ..starred };
    assert_eq!(measures(&[&ERC8004, &REPUTATION, &average])[0].question, question(&of));
    let needed = "! tiers: the source \"reputation\" needs the reputation registry of ERC-8004";
    let unused = "? chain.contracts.stake_vault: gives no agent its tier; …";
    says(
        &format!("tiers = {{ source = 'reputation', clients = [{QUOTED}, {OTHER}], thresholds = ['1'] }}"),
        &format!(
            "chain.contracts.reputation = {OTHER}
             {unused}
             {needed}
             chain.registries = 'erc8004'
             {unused}
             {needed}
             chain.registries = 'erc8004'
             chain.contracts.reputation = {OTHER}
             tiers.clients = [{QUOTED}, {OTHER}, '{0}']
             ! tiers.clients: item 3 is \"{0}\" again; write each once",
            CONTRACT.to_checksum(None)
        ),
    );
}

#[test]
fn an_average_is_over_no_more_clients_than_are_listed_who_share_the_entries_evenly() {
    for (count, most, each) in [(3, "1000", 333), (3, "2", 1), (100, "10000", 100), (1, "10000", 10_000)] {
        let listed = clients(count);
        let keys = [
            &ERC8004[..],
            &REPUTATION[..1],
            &REPUTATION[2..],
            &[("tiers.clients", &*listed), ("chain.feedback_max", most)],
        ]
        .concat();
        let Question::Feedback(of) = &measures(&[&keys])[0].question else { panic!() };
        assert_eq!((of.clients.len(), of.each), (count.into(), each));
        for (over, is_right) in [(1, true), (count, true), (count + 1, false)] {
            let file = minimal_with(&[&keys[..], &[("tiers.average_over", &over.to_string())]].concat());
            assert_eq!(parse(&file, &[]).is_ok(), is_right, "{over} of {count}");
        }
    }
    let found = problems(&minimal_with(&[("tiers.clients", &clients(101))]), &[]);
    assert_eq!(found, ["tiers.clients: has 101 items; write 1 to 100"]);
}

#[test]
fn a_list_is_a_file_and_everyone_has_tier_1_unless_another_is_written() {
    let list = TierSources { list: Some("agents.txt".into()), ..TierSources::default() };
    assert_eq!(sources(&[&[("tiers.source", "'list'"), ("tiers.file", "'agents.txt'")]]), list);
    let everyone = TierSources { everyone: Some(Tier::Bronze), ..TierSources::default() };
    assert_eq!(sources(&[&[("tiers.source", "'everyone'")]]), everyone);
    let diamond = TierSources { everyone: Some(Tier::Diamond), ..TierSources::default() };
    assert_eq!(sources(&[&[("tiers.source", "'everyone'"), ("tiers.tier", "4")]]), diamond);
}

#[test]
fn a_fraction_counts_by_the_decimals_of_the_token() {
    let keys = [("tiers.token_decimals", "2"), ("tiers.stake", r#"["0.5", "0.510", "1", "0012.34"]"#)];
    assert_eq!(sources(&[&keys]).stakes, Some(PerTier([50, 51, 100, 1_234].map(U256::from))));
    let keys = [("tiers.token_decimals", "0"), ("tiers.stake", r#"["1", "2.0", "3", "3.5"]"#)];
    let found = problems(&minimal_with(&keys), &[]);
    assert!(found.len() == 1 && found[0].starts_with("tiers.stake: item 4 is \"3.5\""), "{found:?}");
}

#[test]
fn each_source_says_which_keys_it_needs() {
    for (source, needed) in [
        ("erc20", &["contract", "thresholds"][..]),
        ("erc721", &["contract", "thresholds"]),
        ("call", &["contract", "function", "thresholds"]),
        ("reputation", &["clients", "thresholds"]),
        ("list", &["file"]),
    ] {
        let wanted =
            needed.iter().map(|key| format!("tiers.{key}: is required with the source \"{source}\""));
        let found = problems(&minimal_with(&[("tiers.source", &format!("'{source}'"))]), &[]);
        assert_eq!(found, wanted.collect::<Vec<_>>());
    }
    says(
        "chain.contracts = { identity = '0x5FbDB2315678afecb367f032d93F642f64180aa3' }",
        "tiers.source = 'stake_vault'
         ! chain.contracts.stake_vault: is required
         tiers.source = 'everyone'
         ok",
    );
}

#[test]
fn keys_of_other_sources_do_nothing_and_are_warned_of() {
    let others = [
        ("tiers.average_over", "1"),
        ("tiers.clients", QUOTED_LIST),
        ("tiers.contract", QUOTED),
        ("tiers.decimals", "3"),
        ("tiers.file", "'agents.txt'"),
        ("tiers.function", "'score(uint256)'"),
        ("tiers.of", "'owner'"),
        ("tiers.thresholds", "['0.01', '0.02']"),
        ("tiers.stake", "['1', '2', '3', '4']"),
        ("tiers.tag", "'uptime'"),
        ("tiers.tier", "2"),
    ];
    let reputation = [&ERC8004[..], &REPUTATION].concat();
    for (base, of_source) in [
        (&[][..], &["stake"][..]),
        (&ERC20, &["contract", "decimals", "of", "thresholds"]),
        (&[("tiers.source", "'erc721'"), ERC20[1], ERC20[2]], &["contract", "of", "thresholds"]),
        (&CALL, &["contract", "function", "decimals", "thresholds"]),
        (&reputation, &["average_over", "clients", "tag", "thresholds"]),
        (&[("tiers.source", "'list'"), ("tiers.file", "'agents.txt'")], &["file"]),
        (&[("tiers.source", "'everyone'")], &["tier"]),
    ] {
        for (key, literal) in others {
            if base.iter().any(|(other, _)| *other == key) {
                continue;
            }
            let (found, alone) = (warnings(&[base, &[(key, literal)]]), warnings(&[base]));
            let warned: Vec<_> = found.iter().filter(|one| !alone.contains(one)).collect();
            if of_source.contains(&key.trim_start_matches("tiers.")) {
                assert!(warned.is_empty(), "{key} {base:?}: {warned:?}");
                continue;
            }
            assert!(warned.len() == 1 && warned[0].contains(&format!("{key}: has no meaning")), "{warned:?}");
            assert_eq!(sources(&[base, &[(key, literal)]]), sources(&[base]), "{key} {base:?}");
        }
    }
}

#[test]
fn a_vault_that_gives_no_tier_beside_another_number_is_warned_of() {
    let warned = |keys| warnings(&[keys]).iter().any(|one| one.contains("gives no agent its tier"));
    assert!(warned(&ERC20));
    assert!(!warned(&[("tiers.source", "'everyone'")]), "its stake is shown");
    assert!(!warned(&[]));
}

#[test]
fn several_sources_stand_in_tables_with_the_same_keys() {
    let several = with_tables(
        "[[tiers.sources]]
         source = 'everyone'
         [[tiers.sources]]
         source = 'erc20'
         contract = '0xdc64a140aa3e981100a9beca4e685f962f0cf6c9'
         thresholds = ['2']
         [[tiers.sources]]
         [[tiers.sources]]
         source = 'erc20'
         contract = '0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0'
         decimals = 0
         thresholds = ['3']
         [[tiers.sources]]
         source = 'list'
         file = 'agents.txt'
         [tiers]
         token_decimals = 0
         requests_per_minute = [1, 2, 3, 4]",
    );
    let sources = parse(&several, &[]).unwrap().fixed.tiers.sources;
    let names: Vec<_> = sources.named().map(|(name, _)| name).collect();
    assert_eq!(names, ["stake_vault", "erc20", "erc20", "list", "everyone"]);
    assert_eq!(sources.stake_of(Tier::Bronze), Some(U256::from(1_000)), "in the token's decimals");
    let thresholds: Vec<_> = sources.measures.iter().map(|measure| measure.thresholds.clone()).collect();
    assert_eq!(thresholds, [units([2_000_000_000_000_000_000]), units([3])]);
    assert_eq!(sources.everyone, Some(Tier::Bronze));
    let alone = with_tables("[[tiers.sources]]\nsource = 'everyone'\ntier = 3");
    assert_eq!(
        parse(&alone, &[]).unwrap().fixed.tiers.sources,
        TierSources { everyone: Some(Tier::Gold), ..TierSources::default() },
        "no stake gives a tier unless its source is written"
    );
}

#[test]
fn a_source_that_is_there_twice_or_beside_tables_or_too_much_is_refused() {
    for twice in ["source = 'everyone'", "", "source = 'list', file = 'agents.txt'"] {
        let text = format!("tiers.sources = [{{ {twice} }}, {{ {twice} }}]");
        says("", &format!("{text}\n! tiers.sources[2].source: is there already"));
    }
    for beside in ["source = 'everyone'", "stake = ['1', '2', '3', '4']", "tier = 2", "file = 'agents.txt'"] {
        let key = beside.split(' ').next().unwrap();
        let text = with_tables(&format!("[tiers]\n{beside}\n[[tiers.sources]]\nsource = 'everyone'\n"));
        let phrase = "stands beside [[tiers.sources]]; write it in one of these tables";
        assert_eq!(problems(&text, &[]), [format!("tiers.{key}: {phrase}")]);
    }
    let one = format!("[[tiers.sources]]\nsource = 'erc721'\ncontract = '{CONTRACT}'\nthresholds = ['1']\n");
    assert_eq!(parse(&with_tables(&one.repeat(8)), &[]).unwrap().fixed.tiers.sources.measures.len(), 8);
    assert_eq!(problems(&with_tables(&one.repeat(9)), &[]), ["tiers.sources: has 9 items; write 0 to 8"]);
}
