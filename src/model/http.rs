//! The real `Transport`: HTTP through reqwest, kept-alive, without redirects (a key never follows one).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::keys::Keys;
use super::pages::Pages;
use crate::world::{Boxed, HttpBody, HttpRequest, HttpResponse, KeyAt, PageRequest, Transport, TransportError};

/// Clients are built when first needed: loading root certificates takes longer than a whole loopback call, so an
/// address without TLS gets a client without them.
#[derive(Default)]
pub struct Http {
    plain: RefCell<Option<reqwest::Client>>,
    /// By the certificates that are trusted beside the machine's own.
    tls: RefCell<BTreeMap<Option<PathBuf>, reqwest::Client>>,
    keys: Option<Keys>,
    /// The address of the latest request, parsed: a lane's requests all go to one.
    latest: RefCell<Option<(String, reqwest::Url)>>,
    pages: Pages,
}

impl Http {
    pub fn new() -> Http {
        Http::default()
    }

    /// With keys that no variable holds.
    pub fn with_keys(keys: Keys) -> Http {
        Http { keys: Some(keys), ..Http::default() }
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
        if !request.url.starts_with("https:") {
            if let Some(client) = &*self.plain.borrow() {
                return Ok(client.clone());
            }
            let client = build(builder(request).tls_certs_only([]))?;
            *self.plain.borrow_mut() = Some(client.clone());
            return Ok(client);
        }
        if let Some(client) = self.tls.borrow().get(&request.ca_file) {
            return Ok(client.clone());
        }
        let mut builder = builder(request);
        if let Some(path) = &request.ca_file {
            builder = builder.tls_certs_merge(certificates(path)?);
        }
        let client = build(builder)?;
        self.tls.borrow_mut().insert(request.ca_file.clone(), client.clone());
        Ok(client)
    }
}

/// Proxies (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`) are those of the process environment.
fn builder(request: &HttpRequest) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(request.connect_timeout)
        .pool_idle_timeout(Duration::from_secs(300))
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, TransportError> {
    builder.build().map_err(|error| TransportError::Unsendable(chain(&error)))
}

fn certificates(path: &Path) -> Result<Vec<reqwest::Certificate>, TransportError> {
    let wrong = |why: String| TransportError::Unsendable(format!("`ca_file: {}` {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let found = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| wrong(chain(&error)))?;
    if found.is_empty() { Err(wrong("holds no certificate".to_owned())) } else { Ok(found) }
}

impl Transport for Http {
    fn key<'a>(&'a self, at: &'a KeyAt, again: bool) -> Boxed<'a, Result<Option<String>, String>> {
        Box::pin(async move {
            match &self.keys {
                Some(keys) => keys.get(at, again).await.map(Some),
                None => Err(format!("{at} is not read here")),
            }
        })
    }

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
