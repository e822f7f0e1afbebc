//! The real `Transport`: HTTP through reqwest, kept-alive, without redirects (a key never follows one).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::pages::Pages;
use crate::world::{Boxed, HttpBody, HttpRequest, HttpResponse, PageRequest, Transport, TransportError};

/// Clients are built when first needed: loading root certificates takes longer than a whole loopback call, so an
/// address without TLS gets a client without them.
#[derive(Default)]
pub struct Http {
    plain: RefCell<Option<reqwest::Client>>,
    tls: RefCell<Option<reqwest::Client>>,
    /// The address of the latest request, parsed: a lane's requests all go to one.
    latest: RefCell<Option<(String, reqwest::Url)>>,
    pages: Pages,
}

impl Http {
    pub fn new() -> Http {
        Http::default()
    }

    fn url(&self, text: &str) -> Result<reqwest::Url, TransportError> {
        if let Some((known, url)) = &*self.latest.borrow()
            && known == text
        {
            return Ok(url.clone());
        }
        let url =
            reqwest::Url::parse(text).map_err(|error| TransportError::Connect(format!("the address: {error}")))?;
        *self.latest.borrow_mut() = Some((text.to_owned(), url.clone()));
        Ok(url)
    }

    fn client(&self, request: &HttpRequest) -> Result<reqwest::Client, TransportError> {
        let tls = request.url.starts_with("https:");
        let slot = if tls { &self.tls } else { &self.plain };
        if let Some(client) = &*slot.borrow() {
            return Ok(client.clone());
        }
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(request.connect_timeout)
            .pool_idle_timeout(Duration::from_secs(300));
        if !tls {
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| TransportError::Connect(chain(&error)))?;
        *slot.borrow_mut() = Some(client.clone());
        Ok(client)
    }
}

impl Transport for Http {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async move {
            let client = self.client(&request)?;
            let method = match request.method {
                "GET" => reqwest::Method::GET,
                _ => reqwest::Method::POST,
            };
            let mut builder = client.request(method, self.url(&request.url)?);
            for (name, value) in &request.headers {
                builder = builder.header(name, value);
            }
            let left = request.body.len() as u64;
            builder = builder.body(reqwest::Body::wrap(Segments { queue: request.body.0.into(), left }));
            Ok(answer(builder.send().await.map_err(|error| classify(&error))?))
        })
    }

    fn fetch(&self, request: PageRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(self.pages.fetch(request))
    }
}

pub(super) fn answer(response: reqwest::Response) -> HttpResponse {
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    HttpResponse { status, headers, body: Box::new(Answer { response }) }
}

struct Answer {
    response: reqwest::Response,
}

impl HttpBody for Answer {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>> {
        Box::pin(async move { self.response.chunk().await.map_err(|error| classify(&error)) })
    }
}

/// A body of known length made of segments that are never copied together.
struct Segments {
    queue: VecDeque<Bytes>,
    left: u64,
}

impl http_body::Body for Segments {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        let next = self.queue.pop_front();
        if let Some(segment) = &next {
            self.left -= segment.len() as u64;
        }
        Poll::Ready(next.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.queue.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

pub(super) fn classify(error: &reqwest::Error) -> TransportError {
    if error.is_builder() {
        TransportError::Unsendable(chain(error))
    } else if error.is_connect() {
        TransportError::Connect(chain(error))
    } else if error.is_timeout() {
        TransportError::Timeout
    } else {
        TransportError::Reset(chain(error))
    }
}

/// An error with its causes, without the URL (it may hold a key).
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    if text.is_empty() { "the HTTP client failed".to_owned() } else { text }
}
