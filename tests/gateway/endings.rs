//! Where bodies end: in HTTP/2 with a frame that may be empty, in HTTP/1.0 with the connection.

use bytes::Bytes;
use http::Method;

use crate::rig::case::{Case, cases};
use crate::rig::h2c::{self, run};
use crate::rig::scripts;
use crate::rig::site::Site;
use crate::rig::stage::{ACME, Stage, public_path};
use crate::rig::upstream::Then;
use crate::support::wire::Request;

pub(crate) const CASES: &[Case] =
    cases![a_body_of_http_2_that_ends_with_an_empty_frame_ends_once, a_client_of_http_1_0_gets_no_chunks,];

/// Sends the pieces and then an empty frame that ends the stream; gives the status.
fn post_in_pieces(gateway: std::net::SocketAddr, path: &str, pieces: &[&'static str]) -> u16 {
    run(async {
        let mut client = h2c::connect(gateway).await.unwrap().ready().await.unwrap();
        let uri = format!("http://{ACME}{path}");
        let head = http::Request::builder().method(Method::POST).uri(uri).body(()).unwrap();
        let (answer, mut body) = client.send_request(head, false).unwrap();
        for piece in pieces {
            body.send_data(Bytes::from_static(piece.as_bytes()), false).unwrap();
            tokio::task::yield_now().await;
        }
        body.send_data(Bytes::new(), true).unwrap();
        answer.await.unwrap().status().as_u16()
    })
}

fn a_body_of_http_2_that_ends_with_an_empty_frame_ends_once(stage: &Stage) {
    let Site { gateway, upstream, .. } = &Site::start(stage);
    for pieces in [&[][..], &["abc"], &["abc", "def"]] {
        for _ in 0..20 {
            let path = public_path();
            assert_eq!(post_in_pieces(gateway.address, &path, pieces), 200);
            assert_eq!(upstream.whole(&path).body, pieces.concat().as_bytes());
            let next = public_path();
            assert_eq!(gateway.ask(&Request::get(ACME, &next)).status, 200, "behind {pieces:?}");
        }
    }
    assert_eq!(upstream.broken(), Vec::<String>::new(), "nothing stands between two requests");
}

fn a_client_of_http_1_0_gets_no_chunks(stage: &Stage) {
    let site = stage.site();
    let path = public_path();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    site.upstream.on(&path, scripts::bytes(chunked, Then::Goes));
    let mut wire = site.gateway.connect();
    wire.send(format!("GET {path} HTTP/1.0\r\nHost: {ACME}\r\n\r\n").as_bytes());
    let answer = String::from_utf8(wire.rest()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("transfer-encoding"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
}
