//! `web-fetch` with scripted answers: what is asked for, what is followed, what is shown.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::process::sandbox::Network;

/// Answers in turn, and remembers what was asked for.
#[derive(Default)]
struct Site {
    answers: RefCell<VecDeque<Result<HttpResponse, TransportError>>>,
    asked: RefCell<Vec<PageRequest>>,
}

struct Body(VecDeque<Bytes>);

impl HttpBody for Body {
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, TransportError>> {
        let next = self.0.pop_front();
        Box::pin(async move { Ok(next) })
    }
}

impl Transport for Site {
    fn send(&self, _: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        Box::pin(async { Err(TransportError::Timeout) })
    }

    fn fetch(&self, request: PageRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        self.asked.borrow_mut().push(request);
        let answer = self.answers.borrow_mut().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn answer(status: u16, headers: &[(&str, &str)], body: &[&[u8]]) -> Result<HttpResponse, TransportError> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = Body(body.iter().map(|part| Bytes::copy_from_slice(part)).collect());
    Ok(HttpResponse { status, headers, body: Box::new(body) })
}

fn plain(text: &str) -> Result<HttpResponse, TransportError> {
    answer(200, &[("content-type", "text/plain; charset=utf-8")], &[text.as_bytes()])
}

fn to(url: &str) -> Result<HttpResponse, TransportError> {
    answer(302, &[("location", url)], &[])
}

fn rig(network: Network, answers: impl IntoIterator<Item = Result<HttpResponse, TransportError>>) -> (Rig, Rc<Site>) {
    let mut rig = Rig::with(|options| {
        options.allow = Some(vec!["web-fetch".into()]);
        options.web = Web { network, private: false };
        options.secrets = Secrets::new([("TOKEN".to_owned(), "s3cret-0123456789".to_owned())]);
    });
    let site = Rc::new(Site { answers: RefCell::new(answers.into_iter().collect()), ..Site::default() });
    rig.world.transport = site.clone();
    (rig, site)
}

fn asked(site: &Site) -> Vec<String> {
    site.asked.borrow().iter().map(|request| request.url.clone()).collect()
}

#[test]
fn it_is_offered_where_it_is_named_and_there_is_a_network() {
    let names = |rig: &Rig| rig.tools.schemas().iter().map(|schema| schema.name).collect::<Vec<_>>();
    assert!(!names(&Rig::new()).contains(&"web-fetch"));
    assert_eq!(names(&rig(Network::All, []).0), ["tool-output", "web-fetch"]);
    assert_eq!(names(&rig(Network::Ports(vec![443]), []).0), ["tool-output", "web-fetch"]);
    assert_eq!(names(&rig(Network::None, []).0), [""; 0]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_page_is_shown_as_text_and_an_error_with_its_page() {
    let html = answer(200, &[("content-type", "Text/HTML")], &[b"<h1>Hi</h1><p>a", b" b</p>"]);
    let missing = answer(404, &[("content-type", "text/plain")], &[b"no such page"]);
    let latin = answer(200, &[("content-type", "text/plain; charset=ISO-8859-1")], &[b"caf\xe9"]);
    let unnamed = answer(200, &[], &[b" <!DOCTYPE html><p>x"]);
    let odd = answer(200, &[("content-type", "text/plain")], &[b"a\x1b[31mb\xff"]);
    let (mut rig, site) = rig(Network::All, [html, missing, latin, unnamed, odd]);
    let url = |path: &str| json!({"url": format!("https://example.org/{path}")});
    assert_eq!(
        rig.ok("web-fetch", url("x#part")).await,
        "https://example.org/x\nHTTP 200, text/html, 9 bytes of text\n\n# Hi\n\na b"
    );
    assert_eq!(
        rig.fails("web-fetch", url("y")).await,
        "https://example.org/y\nHTTP 404, text/plain, 12 bytes of text\n\nno such page"
    );
    assert!(rig.ok("web-fetch", url("z")).await.ends_with("\n\ncafé"));
    assert!(rig.ok("web-fetch", url("u")).await.ends_with("HTTP 200, 1 bytes of text\n\nx"));
    assert!(rig.ok("web-fetch", url("o")).await.ends_with("\n\nab\u{fffd}"));
    assert_eq!(asked(&site)[0], "https://example.org/x");
    assert!(site.asked.borrow().iter().all(|request| !request.private));
}

#[tokio::test(flavor = "current_thread")]
async fn five_redirects_are_followed_and_each_is_held_against_the_policy() {
    let (mut rig, site) = rig(Network::All, [to("/b"), to("//other.org/c?d=1"), plain("there")]);
    let text = rig.ok("web-fetch", json!({"url": "https://example.org/a/x"})).await;
    assert!(text.starts_with("https://other.org/c?d=1\n") && text.ends_with("\n\nthere"), "{text}");
    assert_eq!(asked(&site), ["https://example.org/a/x", "https://example.org/b", "https://other.org/c?d=1"]);

    let (mut many, site) = self::rig(Network::All, (0..9).map(|n| to(&format!("/{n}"))));
    let text = many.fails("web-fetch", json!({"url": "http://example.org/"})).await;
    assert!(text.contains("more than 5 redirects") && text.contains("example.org/5"), "{text}");
    assert_eq!(asked(&site).len(), 6);

    for (location, why) in [
        ("file:///etc/passwd", "only http and https"),
        ("http://user:hunter2@other.org/", "user or a password"),
        ("http://other.org:8443/", "the network of this run is [443]"),
        ("http://other.org/", "the network of this run is [443]"),
    ] {
        let (mut rig, site) = self::rig(Network::Ports(vec![443]), [to(location)]);
        let text = rig.refused("web-fetch", json!({"url": "https://example.org/"})).await;
        assert!(text.contains(why) && !text.contains("hunter2"), "{text}");
        assert_eq!(asked(&site), ["https://example.org/"], "{location}");
    }
    let refused = Err(TransportError::Refused("10.0.0.1 is a private address".into()));
    let (mut rig, _) = self::rig(Network::All, [to("http://inside.example.org/"), refused]);
    let text = rig.refused("web-fetch", json!({"url": "https://example.org/"})).await;
    assert!(text.contains("`http://inside.example.org/` may not be accessed: 10.0.0.1 is a private address"), "{text}");
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_no_public_page_is_not_asked_for() {
    let (mut rig, site) = rig(Network::All, []);
    for (url, why) in [
        ("example.org", "is no address"),
        ("ftp://example.org/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("https://me:pw@example.org/", "user or a password"),
        ("https://example.org/?k=s3cret-0123456789", "holds a secret value"),
        ("https://example.org/«secret:TOKEN»", "stands for a secret value"),
    ] {
        let text = rig.refused("web-fetch", json!({"url": url})).await;
        assert!(text.contains(why), "{url}: {text}");
    }
    assert_eq!(asked(&site), [""; 0]);
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_no_text_is_not_read_and_what_is_too_long_is_cut() {
    let picture = answer(200, &[("content-type", "image/png"), ("content-length", "1234")], &[b"\x89PNG"]);
    let packed = answer(200, &[("content-type", "text/html"), ("content-encoding", "gzip")], &[b"\x1f\x8b"]);
    let unnamed = answer(200, &[], &[b"a\0b"]);
    let part = vec![b'x'; 3 << 20];
    let long = answer(200, &[("content-type", "text/plain")], &[&part, &part, &part]);
    let (mut rig, _) = rig(Network::All, [picture, packed, unnamed, long]);
    let url = json!({"url": "https://example.org/"});
    assert!(rig.fails("web-fetch", url.clone()).await.contains("is `image/png` of 1234 bytes, not text"));
    assert!(rig.fails("web-fetch", url.clone()).await.contains("coding `gzip`"));
    assert!(rig.fails("web-fetch", url.clone()).await.contains("is not text"));
    let ran = rig.call("web-fetch", url).await;
    assert!(ran.text.contains("5,242,880 bytes of text (of the first 5 MiB; the rest was not read)"));
    assert!(ran.text.len() < 17_000, "{}", ran.text.len());
    assert!(ran.text.ends_with("to read more]"), "{}", &ran.text[15_900..]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_long_page_goes_on_from_an_offset_or_from_the_spool() {
    let page = (0..4_000).map(|n| format!("line {n}\n")).collect::<String>();
    let (mut rig, _) = rig(Network::All, [plain(&page), plain(&page), plain(&page), plain("s3cret-0123456789")]);
    let url = "https://example.org/";
    let ran = rig.call("web-fetch", json!({"url": url})).await;
    assert!(ran.text.contains("[truncated: ") && ran.text.contains("spool:"), "{}", ran.text);
    let text = rig.ok("tool-output", json!({"id": ran.spool.expect("kept"), "offset": 20_000})).await;
    assert!(text.contains("line 2"), "{text}");
    let text = rig.ok("web-fetch", json!({"url": url, "offset": page.find("line 3990").expect("there")})).await;
    assert!(text.contains(", from byte ") && text.contains("\n\nline 3990\n"), "{text}");
    let text = rig.refused("web-fetch", json!({"url": url, "offset": page.len()})).await;
    assert!(text.contains("behind the end"), "{text}");
    let text = rig.ok("web-fetch", json!({"url": url})).await;
    assert!(text.ends_with("«secret:TOKEN»"), "{text}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_page_that_does_not_come_is_given_up() {
    let (mut rig, site) = rig(Network::All, []);
    rig.exec.time_passes.set(true);
    let text = rig.fails("web-fetch", json!({"url": "https://example.org/"})).await;
    assert!(text.contains("did not come within 60 s"), "{text}");
    assert_eq!(asked(&site).len(), 1);
    assert_eq!(*rig.exec.slept.borrow(), [Duration::from_secs(60)]);
}
