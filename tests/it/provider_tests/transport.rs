//! How bytes arrive, or do not.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::*;
use crate::provider::{Gate, Lane, Provider, Reply, Script, Usage, Wire};

#[test]
fn a_connection_is_kept_and_any_prefix_works() {
    let provider = Script::new().agent(Reply::text("a").forever()).start();
    let mut client = Client::new(&provider);
    let (anthropic, chat) = (request(Wire::Anthropic, hello()), request(Wire::OpenAiChat, hello()));
    for (path, wire, body) in [
        ("/v1/messages", Wire::Anthropic, &anthropic),
        ("/some/gateway/v1/messages?beta=true", Wire::Anthropic, &anthropic),
        ("/chat/completions", Wire::OpenAiChat, &chat),
        ("/openai/v1/chat/completions", Wire::OpenAiChat, &chat),
    ] {
        let response = client.post(path, headers(wire), body.to_string().as_bytes());
        assert_eq!(read(wire, &response).text, "a", "{path}");
    }
    let requests = provider.requests();
    assert_eq!((requests[1].path.as_str(), requests[1].query.as_str()), ("/some/gateway/v1/messages", "beta=true"));
    assert_eq!(requests.iter().map(|r| r.n).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(requests.windows(2).all(|pair| pair[0].received <= pair[1].first_byte));
    provider.finish();
}

#[test]
fn a_request_may_be_chunked_and_arrive_byte_by_byte() {
    let provider = Script::new().agent(Reply::text("a")).start();
    let body = request(Wire::Anthropic, hello()).to_string();
    let (first, second) = body.split_at(20);
    let whole = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: x\r\n{}Transfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{first}\r\n{:X};note=1\r\n{second}\r\n0\r\n\r\n",
        headers(Wire::Anthropic),
        first.len(),
        second.len()
    );
    let mut client = Client::new(&provider);
    for byte in whole.as_bytes() {
        client.send(&[*byte]);
    }
    assert!(client.response().expect("an answer").whole);
    assert_eq!(provider.requests()[0].text(), body, "the body without its framing");
    provider.finish();
}

#[test]
fn each_event_is_a_chunk_and_a_split_makes_its_own() {
    let body = request(Wire::Anthropic, hello());
    let provider = Script::new().agent(Reply::text("äöü").split(7)).agent(Reply::text("äöü")).start();
    let mut client = Client::new(&provider);
    let split = client.ask(Wire::Anthropic, &body);
    assert!(split.whole);
    let (last, others) = split.chunks.split_last().expect("chunks");
    assert!(others.iter().all(|size| *size == 7) && (1..=7).contains(last), "{:?}", split.chunks);
    let events = client.ask(Wire::Anthropic, &body);
    assert_eq!(events.chunks.len(), events.events().len());
    assert_eq!(read(Wire::Anthropic, &split), read(Wire::Anthropic, &events), "the same reply either way");
    provider.finish();
}

#[test]
fn a_cut_ends_at_its_byte_without_the_closing_chunk() {
    for wire in Wire::MESSAGES {
        let provider = Script::new()
            .agent(Reply::text("a").usage(1, 1))
            .agent(Reply::text("a").usage(1, 1).cut_after(100))
            .agent(Reply::text("a").usage(1, 1).cut_after(0))
            .agent(Reply::text("a").usage(1, 1).cut_after(1 << 20))
            .start();
        let body = request(wire, hello());
        let whole = Client::new(&provider).ask(wire, &body);
        for cut in [100, 0] {
            let mut client = Client::new(&provider);
            let response = client.ask(wire, &body);
            assert_eq!(response.status, 200);
            assert_eq!((response.whole, response.error), (false, Some(std::io::ErrorKind::UnexpectedEof)));
            assert_eq!(response.body.len(), cut);
            // Up to the number in its id.
            assert_eq!(response.body[..cut.min(20)], whole.body[..cut.min(20)]);
            assert_eq!(client.end(), None, "closed, not reset");
        }
        assert!(Client::new(&provider).ask(wire, &body).whole, "a cut behind the end cuts nothing");
        let served = provider.served();
        assert_eq!(served.iter().map(|s| s.whole).collect::<Vec<_>>(), [true, false, false, true]);
        assert_eq!(served[1].usage, None);
        assert_eq!(provider.served_usage()[&Lane::Agent], Usage { input: 2, output: 2, ..Usage::default() });
        provider.finish();
    }
}

#[test]
fn a_plain_body_can_be_cut_too() {
    let provider = Script::new().agent(Reply::error(503).body("0123456789").cut_after(4)).start();
    let response = Client::new(&provider).ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    assert_eq!((response.status, response.body.as_slice(), response.whole), (503, &b"0123"[..], false));
    assert_eq!(response.header("content-length"), Some("10"));
    provider.finish();
}

#[test]
fn a_reset_is_one() {
    let provider = Script::new().agent(Reply::text("a").reset()).agent(Reply::text("a").reset().cut_after(10)).start();
    for _ in 0..2 {
        let mut client = Client::new(&provider);
        client.send_request(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        assert_eq!(client.end(), Some(std::io::ErrorKind::ConnectionReset));
    }
    let served = provider.served();
    assert_eq!(served.iter().map(|s| (s.status, s.whole)).collect::<Vec<_>>(), [(None, false), (Some(200), false)]);
    provider.finish();
}

#[test]
fn a_refused_connection_is_no_request() {
    let body = request(Wire::Anthropic, hello());
    let provider = Script::new()
        .agent(Reply::text("a"))
        .agent(Reply::refuse_connection().repeat(2))
        .agent(Reply::text("b"))
        .start();
    let mut client = Client::new(&provider);
    let first = client.ask(Wire::Anthropic, &body);
    assert_eq!(first.header("connection"), Some("close"), "so that the next request needs a new connection");
    assert_eq!(client.end(), None);
    for _ in 0..2 {
        let mut refused = Client::new(&provider);
        assert_eq!(refused.end(), Some(std::io::ErrorKind::ConnectionReset));
    }
    assert_eq!(read(Wire::Anthropic, &Client::new(&provider).ask(Wire::Anthropic, &body)).text, "b");
    assert_eq!((provider.refused(), provider.requests().len()), (2, 2));
    provider.finish();

    let dead = Provider::dead_url();
    let address = dead.strip_prefix("http://").expect("a URL").to_owned();
    let error = TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_stall_ends_when_the_client_goes() {
    let provider = Script::new().agent(Reply::text("a").stall()).start();
    let mut client = Client::new(&provider);
    client.send_request(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    provider.wait_for_request(1, SOON);
    drop(client);
    let served = provider.wait_for_answer(1, SOON);
    assert_eq!((served.status, served.whole), (None, false));
    provider.finish();
}

#[test]
fn a_stall_or_a_held_reply_ends_when_the_provider_ends() {
    let gate = Gate::new();
    for reply in [Reply::text("a").stall(), Reply::text("a").stall_after(50), Reply::text("a").held(&gate)] {
        let provider = Script::new().agent(reply).start();
        let mut client = Client::new(&provider);
        client.send_request(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        provider.wait_for_request(1, SOON);
        let before = Instant::now();
        provider.finish();
        assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
        client.end();
    }
}

#[test]
fn a_stall_in_the_middle_sends_what_came_before_and_goes_on_when_it_has_a_time() {
    let pause = Duration::from_millis(150);
    let provider = Script::new()
        .agent(Reply::text("abc").stall_after_for(333, pause))
        .agent(Reply::text("abc").stall_for(pause))
        .start();
    let body = request(Wire::Anthropic, hello());
    let mut client = Client::new(&provider);
    for _ in 0..2 {
        let before = Instant::now();
        let response = client.ask(Wire::Anthropic, &body);
        assert!(before.elapsed() >= pause, "{:?}", before.elapsed());
        assert!(response.whole);
        assert_eq!(read(Wire::Anthropic, &response).text, "abc");
    }
    provider.finish();

    let provider = Script::new().agent(Reply::text("abc").stall_after(333)).start();
    let mut client = Client::new(&provider);
    client.reader.get_mut().set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let response = client.ask(Wire::Anthropic, &body);
    assert_eq!((response.body.len(), response.whole), (333, false), "the bytes before the stall are there");
    assert_eq!(response.error, Some(std::io::ErrorKind::WouldBlock), "and the connection is still open");
    provider.finish();
}

#[test]
fn a_pace_spreads_the_events() {
    let provider = Script::new().agent(Reply::text("a").pace(Duration::from_millis(20))).start();
    let before = Instant::now();
    let response = Client::new(&provider).ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    let least = Duration::from_millis(20) * response.chunks.len() as u32;
    assert!(response.whole && before.elapsed() >= least, "{:?} of {least:?}", before.elapsed());
    provider.finish();
}

#[test]
fn a_reply_without_its_terminal_ends_cleanly_and_says_no_stop() {
    for wire in Wire::MESSAGES {
        let provider = Script::new().agent(Reply::bash("true").no_terminal()).start();
        let response = Client::new(&provider).ask(wire, &request(wire, hello()));
        let got = read(wire, &response);
        assert!(response.whole);
        assert_eq!((got.stop.as_str(), got.usage, got.calls.len()), ("", None, 1));
        assert_eq!(provider.served()[0].usage, None);
        provider.finish();
    }
}

#[test]
fn errors_have_status_headers_and_the_wires_body() {
    for wire in Wire::MESSAGES {
        let provider = Script::new()
            .agent(Reply::error(429).header("Retry-After", "1"))
            .agent(
                Reply::text("not sent")
                    .status(502)
                    .body("<html>bad gateway</html>")
                    .header("content-type", "text/html"),
            )
            .agent(Reply::overflow(200_000))
            .agent(Reply::empty().body("{}"))
            .start();
        let mut client = Client::new(&provider);
        let mut ask = || client.ask(wire, &request(wire, hello()));
        let limited = ask();
        assert_eq!((limited.status, limited.header("retry-after")), (429, Some("1")));
        let body: Value = serde_json::from_slice(&limited.body).expect("JSON");
        assert_eq!(body["error"]["type"], "rate_limit_error");
        let html = ask();
        assert_eq!((html.status, html.header("content-type")), (502, Some("text/html")));
        assert_eq!(html.body, b"<html>bad gateway</html>");
        let overflow = ask();
        let body: Value = serde_json::from_slice(&overflow.body).expect("JSON");
        assert_eq!(overflow.status, 400);
        assert!(body["error"]["message"].as_str().expect("a message").contains("200000"));
        let plain = ask();
        assert_eq!((plain.status, plain.header("content-type")), (200, Some("application/json")));
        provider.finish();
    }
}

#[test]
fn raw_bytes_are_sent_as_they_are() {
    let raw = b"\xef\xbb\xbfdata: {\"x\":\"\xff\"}\r\r\n: comment\n";
    let provider = Script::new().agent(Reply::raw(&raw[..])).start();
    let response = Client::new(&provider).ask(Wire::OpenAiChat, &request(Wire::OpenAiChat, hello()));
    assert_eq!((response.body.as_slice(), response.whole), (&raw[..], true));
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    provider.finish();
}
