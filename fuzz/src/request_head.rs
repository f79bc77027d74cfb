//! Request heads: httparse and hyper read alike what we accept.

use crate::http1::FIELDS_MAX;
use crate::http1::head::{end_of_head, read_request};
use crate::hyper_reads;

/// The method, the target, the version, the end of the body and the fields, if we accept the head.
pub fn parts(input: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut spans = crate::http1::Spans::default();
    let ours = read_request(input, &mut spans).ok()?;
    let version = if ours.is_http_1_0 { b"1.0" } else { b"1.1" };
    let line =
        [&input[ours.method], &input[ours.target], version, &crate::end_of(ours.body)].map(<[u8]>::to_vec);
    Some([line.to_vec(), crate::flat(crate::ours(input, &spans))].concat())
}

pub fn check(input: &[u8]) {
    let mut spans = crate::http1::Spans::default();
    let Ok(ours) = read_request(input, &mut spans) else { return };
    for searched in [0, 1, 2, 3, 4].map(|behind| behind * input.len() / 4).map(|at| at.min(input.len() - 1)) {
        assert_eq!(end_of_head(input, searched), Some(input.len()), "a head has no empty line but the last");
    }
    let fields = crate::ours(input, &spans);
    let (method, target) = (&input[ours.method], &input[ours.target]);

    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut theirs = httparse::Request::new(&mut headers);
    let length = theirs.parse(input);
    // A target that is not UTF-8 is none to it.
    if std::str::from_utf8(target).is_ok() {
        assert_eq!(length, Ok(httparse::Status::Complete(input.len())));
        assert_eq!(theirs.method.unwrap().as_bytes(), method);
        assert_eq!(theirs.path.unwrap().as_bytes(), target);
        assert_eq!(theirs.version, Some(u8::from(!ours.is_http_1_0)));
        assert_eq!(crate::of_httparse(theirs.headers), fields);
    }

    let Some(theirs) = hyper_reads::request(input) else {
        // It has a type for targets, which takes fewer of them: those with odd bytes, or such as `//`.
        let is_plain = !ours.has_odd_target && target.len() < 60_000 && target.starts_with(b"/");
        assert!(!is_plain, "hyper refuses");
        return;
    };
    assert_eq!(theirs.head.method.as_str().as_bytes(), method);
    assert_eq!(theirs.head.version == http::Version::HTTP_10, ours.is_http_1_0);
    crate::assert_same_fields(&theirs.head.headers, &fields);
    assert_eq!(theirs.body, hyper_reads::expected(ours.body));
}
