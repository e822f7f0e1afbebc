//! `web-fetch`: a page of the web as text.
//!
//! It asks through the `Transport` port, one hop at a time: each hop is held against the network policy, and the
//! address behind a name is looked at when the connection is made. Never: a key, a cookie, a proxy, another method
//! than GET.

mod html;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reqwest::Url;

use super::args::Args;
use super::dispatch::{Done, Place};
use super::error::ToolError;
use super::output::{Whole, thousands};
use crate::event::ToolStatus;
use crate::process::sandbox::Network;
use crate::world::{HttpResponse, PageRequest, TransportError};

/// For everything, redirects and all.
const MOST_TIME: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: usize = 5;
/// Of a body; what is behind it is not read.
const MOST_BYTES: usize = 5 << 20;

/// What `web-fetch` may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Web {
    pub network: Network,
    /// Loopback, private and shared addresses, too.
    pub private: bool,
}

/// A page is being fetched as long as this lives.
pub(super) struct Busy(Rc<Cell<bool>>);

impl Busy {
    pub(super) fn new(fetching: &Rc<Cell<bool>>) -> Busy {
        fetching.set(true);
        Busy(Rc::clone(fetching))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// `web-fetch`. Dropping the future ends the exchange.
pub(super) async fn fetch(at: Place<'_>, args: &Args) -> Result<Done, ToolError> {
    let asked = args.required("url")?;
    if at.options.secrets.contains(asked.as_bytes()) {
        return Err(ToolError::argument("url", "holds a secret value"));
    }
    let url = Url::parse(asked).map_err(|error| ToolError::argument("url", format!("is no address: {error}")))?;
    let limit = MOST_TIME.min(at.options.command_limit);
    tokio::select! {
        biased;
        page = follow(at, url) => shown(&page?, args.number("offset").unwrap_or(0)),
        () = at.world.clock.sleep(limit) => {
            Err(ToolError::Failed(format!("the page did not come within {} s", limit.as_secs())))
        }
    }
}

/// A page as it came.
struct Page {
    url: Url,
    status: u16,
    /// The media type, in lower case and without parameters; empty when none was named.
    kind: String,
    latin: bool,
    body: Vec<u8>,
    /// There was more than is read.
    cut: bool,
}

/// Follows redirects, each of them held against the policy like the first address.
async fn follow(at: Place<'_>, mut url: Url) -> Result<Page, ToolError> {
    for _ in 0..=MOST_REDIRECTS {
        let web = &at.options.web;
        permitted(&url, &web.network)?;
        url.set_fragment(None);
        let request = PageRequest { url: url.to_string(), private: web.private, connect_timeout: CONNECT_TIME };
        let response = at.world.transport.fetch(request).await.map_err(|error| failed(&url, error))?;
        let next = header(&response, "location").filter(|_| matches!(response.status, 301 | 302 | 303 | 307 | 308));
        match next {
            Some(next) => {
                url = url
                    .join(next)
                    .map_err(|error| ToolError::Failed(format!("`{url}` redirects to what is no address: {error}")))?;
            }
            None => return read(url, response).await,
        }
    }
    Err(ToolError::Failed(format!("more than {MOST_REDIRECTS} redirects; the last one leads to `{url}`")))
}

/// What can be said before anything is resolved or connected.
fn permitted(url: &Url, network: &Network) -> Result<(), ToolError> {
    let forbidden = |why: String| Err(ToolError::Forbidden { path: without_user(url), why });
    if !matches!(url.scheme(), "http" | "https") {
        return forbidden("only http and https addresses are fetched".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return forbidden("it holds a user or a password".to_owned());
    }
    match (network, url.port_or_known_default()) {
        (Network::All, _) => Ok(()),
        (Network::Ports(ports), Some(port)) if ports.contains(&port) => Ok(()),
        _ => forbidden(format!("the network of this run is {network}")),
    }
}

fn without_user(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for addresses that cannot have a user, and then have none.
    let _none = url.set_username("");
    let _none = url.set_password(None);
    url.to_string()
}

fn failed(url: &Url, error: TransportError) -> ToolError {
    match error {
        TransportError::Refused(why) => ToolError::Forbidden { path: url.to_string(), why },
        other => ToolError::Failed(format!("fetch `{url}`: {other}")),
    }
}

fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

async fn read(url: Url, mut response: HttpResponse) -> Result<Page, ToolError> {
    let named = header(&response, "content-type").unwrap_or_default().to_ascii_lowercase();
    let (kind, parameters) = named.split_once(';').unwrap_or((&named, ""));
    let kind = kind.trim().to_owned();
    let latin = ["iso-8859-1", "windows-1252", "latin1"].iter().any(|name| parameters.contains(name));
    if let Some(coding) = header(&response, "content-encoding").filter(|coding| *coding != "identity") {
        return Err(ToolError::Failed(format!("`{url}` answers in the coding `{coding}`, which nobody asked for")));
    }
    if !is_text(&kind) {
        let size = header(&response, "content-length").map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        return Err(ToolError::Failed(format!("`{url}` is `{kind}`{size}, not text; fetch it with a command")));
    }
    let (mut body, mut cut) = (Vec::new(), false);
    while let Some(bytes) = response.body.next().await.map_err(|error| failed(&url, error))? {
        let room = MOST_BYTES - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            cut = true;
            break;
        }
    }
    if kind.is_empty() && body.contains(&0) {
        return Err(ToolError::Failed(format!("`{url}` is not text; fetch it with a command")));
    }
    Ok(Page { url, status: response.status, kind, latin, body, cut })
}

/// A server that names no type may have sent text.
fn is_text(kind: &str) -> bool {
    let known = ["json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-sh", "sql", "graphql", "x-ndjson"];
    let tail = kind.rsplit(['/', '+', '-']).next().unwrap_or_default();
    kind.is_empty() || kind.starts_with("text/") || known.contains(&tail) || known.iter().any(|k| kind.ends_with(k))
}

/// The page from `offset` on, behind two lines about it.
fn shown(page: &Page, offset: u64) -> Result<Done, ToolError> {
    let text = match page.latin {
        // Each byte is the character of that number.
        true => page.body.iter().copied().map(char::from).collect(),
        false => String::from_utf8_lossy(&page.body).into_owned(),
    };
    let is_html = page.kind.ends_with("html") || page.kind == "application/xhtml+xml" || looks_like_html(page, &text);
    let text = if is_html { html::text(&text) } else { text };
    let Some(start) = usize::try_from(offset).ok().filter(|&start| start == 0 || start < text.len()) else {
        let all = thousands(text.len() as u64);
        return Err(ToolError::argument(
            "offset",
            format!("is behind the end of the page's text, which has {all} bytes"),
        ));
    };
    let start = text.floor_char_boundary(start);
    let mut about = format!("{}\nHTTP {}", page.url, page.status);
    if !page.kind.is_empty() {
        about.push_str(&format!(", {}", page.kind));
    }
    about.push_str(&format!(", {} bytes of text", thousands(text.len() as u64)));
    if page.cut {
        about.push_str(&format!(" (of the first {} MiB; the rest was not read)", MOST_BYTES >> 20));
    }
    if start > 0 {
        about.push_str(&format!(", from byte {start} on"));
    }
    let whole = Whole::of_bytes(format!("{about}\n\n{}", &text[start..]).into_bytes());
    let status = if (200..300).contains(&page.status) { ToolStatus::Ok } else { ToolStatus::Error };
    Ok(Done { status, ..Done::of(whole) })
}

fn looks_like_html(page: &Page, text: &str) -> bool {
    let start: String = text.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    page.kind.is_empty() && (start.starts_with("<!doctype html") || start.starts_with("<html"))
}
