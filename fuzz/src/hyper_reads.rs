//! hyper as a reader: its connections over bytes in memory.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::{cell::RefCell, future::poll_fn, rc::Rc};

use http::{HeaderMap, Request, Response, request, response};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

use crate::http1::Body;

/// The bytes behind every head. They are a body in chunks, and a body of another length.
pub const BODY: &[u8] = b"3\r\nabc\r\n0\r\n\r\n";

/// The most fields, and the most trailers, that it takes here. Unasked it takes 100.
pub const FIELDS_MAX: usize = 200;

/// A message as hyper reads it, with [`BODY`] or another body behind its head.
pub struct Message<Head> {
    pub head: Head,
    /// The data and the trailers, or `None` where the body is broken, or cut off by the end of the bytes.
    pub body: Option<(Vec<u8>, HeaderMap)>,
}

/// The body that a reader gets out of [`BODY`].
pub fn expected(body: Body) -> Option<(Vec<u8>, HeaderMap)> {
    let data = match body {
        Body::Length(length) => BODY.get(..usize::try_from(length).ok()?)?,
        Body::Chunked => b"abc",
        Body::ToClose => BODY,
    };
    Some((data.to_vec(), HeaderMap::new()))
}

pub fn request(head: &[u8]) -> Option<Message<request::Parts>> {
    request_with(head, BODY)
}

/// `None`: hyper refuses the head.
pub fn request_with(head: &[u8], body: &[u8]) -> Option<Message<request::Parts>> {
    let read = Rc::new(RefCell::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let read = Rc::clone(&read);
        async move {
            let (head, body) = request.into_parts();
            let body = whole(body).await;
            read.borrow_mut().get_or_insert(Message { head, body });
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.max_headers(FIELDS_MAX).half_close(true).header_read_timeout(None);
    let connection =
        http.serve_connection(Wire { bytes: [head, body].concat(), at: 0, is_open: true }, service);
    run(async {
        let _ = connection.await;
    });
    read.take()
}

/// `None`: hyper refuses the head.
pub fn answer(head: &[u8], is_to_head: bool) -> Option<Message<response::Parts>> {
    let mut read = None;
    run(async {
        let wire = Wire { bytes: [head, BODY].concat(), at: 0, is_open: false };
        let mut http = hyper::client::conn::http1::Builder::new();
        http.max_headers(FIELDS_MAX);
        let Ok((mut sender, connection)) = http.handshake::<_, String>(wire).await else { return };
        let mut connection = pin!(connection);
        let mut is_over = false;
        let method = if is_to_head { "HEAD" } else { "GET" };
        let request = Request::builder().method(method).body(String::new()).unwrap();
        let mut exchange = pin!(async {
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = whole(body).await;
            Some(Message { head, body })
        });
        read = poll_fn(|context| {
            is_over = is_over || connection.as_mut().poll(context).is_ready();
            exchange.as_mut().poll(context)
        })
        .await;
    });
    read
}

async fn whole(mut body: Incoming) -> Option<(Vec<u8>, HeaderMap)> {
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.ok()?.into_data() {
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => trailers = frame.into_trailers().ok()?,
        }
    }
    Some((data, trailers))
}

/// Polls until it is ready. All bytes are there from the beginning, so that it is never long.
fn run(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000 {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
    panic!("hyper hangs");
}

/// Bytes to read. Takes any bytes that are written.
struct Wire {
    bytes: Vec<u8>,
    at: usize,
    /// True once the bytes may be read. An answer before its request would be an error.
    is_open: bool,
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.is_open {
            return Poll::Pending;
        }
        let rest = &self.bytes[self.at..];
        let length = rest.len().min(to.remaining());
        to.put_slice(&rest[..length]);
        self.at += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.is_open = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
