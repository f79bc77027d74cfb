//! Requests of HTTP/1 that two readers may read differently. Every listener refuses them with 400 and closes.
//!
//! One list for the reader of heads and the gateway.

/// Headers behind the request line and `Host` of a `POST`.
const OF_POST: &[&str] = &[
    // Content-Length and Transfer-Encoding
    "Content-Length: 6\r\nTransfer-Encoding: chunked",
    "Content-Length: 0\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 6",
    "Transfer-Encoding: chunked\r\nContent-Length: 0",
    "content-length: 5\r\nTRANSFER-ENCODING: Chunked",
    // Content-Length
    "Content-Length: 0\r\nContent-Length: 2",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 0\r\nContent-Length: 0",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 0, 0",
    "Content-Length: 5, 5",
    "Content-Length: +0",
    "Content-Length: +5",
    "Content-Length: -1",
    "Content-Length: 0x0",
    "Content-Length: 0x5",
    "Content-Length: 0 0",
    "Content-Length: 5 5",
    "Content-Length: 0.0",
    "Content-Length: 1e0",
    "Content-Length: zero",
    "Content-Length:",
    "Content-Length: ",
    "Content-Length: 18446744073709551616",
    "Content-Length: 99999999999999999999",
    "Content-Length : 0",
    " Content-Length: 0",
    // Transfer-Encoding
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding:",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: \x0cchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    " Transfer-Encoding: chunked",
    "X: a\r\n\tTransfer-Encoding: chunked",
];

/// Headers behind the request line and `Host` of a `GET`.
const OF_GET: &[&str] = &[
    "Transfer-Encoding: chunked\r\nContent-Length: 3",
    // line ends, folds and control characters
    "X: a\nY: b",
    "X: a\rX-Agent-Id: 1",
    "X: a\r b",
    "X: a\r",
    "X: a\0b",
    "X\0: b",
    "X: a\r\n folded",
    "X: a\r\n\tfolded",
    "X: \x7f",
    // a second Host
    "Host: acme.test",
    "hOsT: golden.test",
    // no header, or one with another name for another reader
    "no colon here",
    ": nameless",
    "X Y: b",
    "X(: b",
    "X-Agent-Id : 1",
    // a Connection that takes away what is not for one hop
    "Connection: close, X-Forwarded-For",
    "Connection: \"x\"",
    "Connection: a,b,c,d,e\r\nConnection: f,g,h,i,j",
];

/// Whole heads; `{}` is where the path goes.
const WHOLE: &[&str] = &[
    "POST {} HTTP/1.0\r\nHost: acme.test\r\nTransfer-Encoding: chunked\r\n\r\n",
    // line ends
    "GET {} HTTP/1.1\nHost: acme.test\n\n",
    "GET {} HTTP/1.1\nHost: acme.test\r\n\r\n",
    "GET {} HTTP/1.1\r\nHost: acme.test\nX: b\r\n\r\n",
    "GET {} HTTP/1.1\r\nHost: acme.test\r\nX: b\n\r\n",
    "GET {} HTTP/1.1\r\nHost: acme.test\rX: b\r\n\r\n",
    // Host
    "GET {} HTTP/1.1\r\n\r\n",
    "GET {} HTTP/1.1\r\n Host: acme.test\r\n\r\n",
    "GET {} HTTP/1.1\r\nHost : acme.test\r\n\r\n",
    "GET {} HTTP/1.1\r\nHost: u@acme.test\r\n\r\n",
    // the request line
    "GET {} HTTP/1.1 \r\nHost: acme.test\r\n\r\n",
    "GET\t{} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET  {} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    " GET {} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "G(T {} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {} HTTP/1.2\r\nHost: acme.test\r\n\r\n",
    "GET {} HTTP/2.0\r\nHost: acme.test\r\n\r\n",
    "GET {} HTTP/0.9\r\nHost: acme.test\r\n\r\n",
    "GET {} http/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {} HTTP/1.1x\r\nHost: acme.test\r\n\r\n",
    "GET {}\r\nHost: acme.test\r\n\r\n",
    // the target
    "GET {}\tx HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {} x HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {}  HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {}\x7f HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET {}#f HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET x{} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET http://acme.test{} HTTP/1.1\r\nHost: acme.test\r\n\r\n",
    "GET http://acme.test{} HTTP/1.1\r\nHost: golden.test\r\n\r\n",
];

/// A body of no chunks. It follows a head that has `chunked` in it.
pub(crate) const NO_CHUNKS: &str = "0\r\n\r\n";

/// Every request of the list, for this path.
pub(crate) fn ambiguous(path: &str) -> Vec<String> {
    let with = |method: &str, headers: &str| {
        let body = if headers.to_ascii_lowercase().contains("chunked") { NO_CHUNKS } else { "" };
        format!("{method} {path} HTTP/1.1\r\nHost: acme.test\r\n{headers}\r\n\r\n{body}")
    };
    let of_post = OF_POST.iter().map(|headers| with("POST", headers));
    let of_get = OF_GET.iter().map(|headers| with("GET", headers));
    let whole = WHOLE.iter().map(|head| head.replace("{}", path));
    of_post.chain(of_get).chain(whole).collect()
}
