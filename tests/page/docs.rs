//! The documentation of the API as a page.

use super::browser::Browser;
use crate::support::{chain::Chain, service::Service, settings::Settings};

#[test]
fn the_documentation_is_one_page_that_runs_no_script_and_loads_nothing() {
    let Some(mut browser) = Browser::start() else { return };
    let chain = Chain::dev();
    let service = Service::start(Settings::new(chain.node, &chain.contracts));
    let answer = service.get("/docs");
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!answer.text().contains("<script"), "{}", answer.text());
    assert_eq!(service.request("POST", "/docs", &[], None).header("allow"), Some("GET, HEAD"));

    let origin = format!("http://{}", service.api);
    browser.look(1_280, 900, false);
    browser.open(&format!("{origin}/docs"));
    assert_eq!(browser.until("document.title"), "Tiergate verification API");
    assert_eq!(browser.until("document.querySelectorAll('article').length"), 13);
    browser.until("document.getElementById('verify').textContent === 'POST /verify'");
    // The style is the one that the policy names.
    browser.until("getComputedStyle(document.body).maxWidth !== 'none'");
    let dangling = "[...document.querySelectorAll('a[href^=\"#\"]')].filter((a) => !document.getElementById(a.hash.slice(1))).length === 0";
    browser.until(dangling);
    browser.picture("docs.png");
    browser.look(360, 740, true);
    browser.until("document.documentElement.scrollWidth <= 360");
    browser.has_kept_to(&origin);
}
