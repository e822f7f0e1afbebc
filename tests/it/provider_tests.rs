//! The scripted provider's own tests: a client of a few lines looks at the bytes, and every rule about requests
//! has one that breaks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::provider::{Gate, Lane, Provider, Reply, Script, Usage, Wire, respond_with, rest_start};

const SOON: Duration = Duration::from_secs(10);

// ------------------------------------------------------------------------------------------------ a client

struct Client {
    reader: BufReader<TcpStream>,
}

/// A response as far as it came.
#[derive(Debug)]
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Sizes of the chunks; empty with a content length.
    chunks: Vec<usize>,
    /// The framing said that the body was over.
    whole: bool,
    /// The error that ended it.
    error: Option<std::io::ErrorKind>,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// `(event, data)` of each frame; every frame has the wire's form.
    fn events(&self) -> Vec<(String, Value)> {
        let text = std::str::from_utf8(&self.body).expect("a stream is UTF-8");
        let frames = text.strip_suffix("\n\n").expect("the last frame is closed").split("\n\n");
        frames
            .map(|frame| {
                let (event, data) = match frame.split_once('\n') {
                    Some((event, data)) => (event.strip_prefix("event: ").expect("an event line"), data),
                    None => ("", frame),
                };
                let data = data.strip_prefix("data: ").expect("a data line");
                let value = if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).expect("JSON") };
                (event.to_owned(), value)
            })
            .collect()
    }
}

impl Client {
    fn new(provider: &Provider) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", provider.port())).expect("the provider listens");
        stream.set_read_timeout(Some(SOON)).expect("a timeout is set");
        Client { reader: BufReader::new(stream) }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the provider reads");
    }

    fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Response {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.send(head.as_bytes());
        self.send(body);
        self.response().expect("an answer begins")
    }

    fn ask(&mut self, wire: Wire, body: &Value) -> Response {
        self.post(path(wire), headers(wire), body.to_string().as_bytes())
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line.strip_suffix("\r\n").map(str::to_owned).ok_or(std::io::ErrorKind::UnexpectedEof)?)
    }

    fn response(&mut self) -> std::io::Result<Response> {
        let status = self.line()?;
        let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        let mut response = Response {
            status: status.parse().expect("a status"),
            headers: Vec::new(),
            body: Vec::new(),
            chunks: Vec::new(),
            whole: false,
            error: None,
        };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").expect("a header");
            response.headers.push((name.to_owned(), value.to_owned()));
        }
        match self.body(&mut response) {
            Ok(()) => response.whole = true,
            Err(error) => response.error = Some(error.kind()),
        }
        Ok(response)
    }

    fn body(&mut self, response: &mut Response) -> std::io::Result<()> {
        if let Some(length) = response.header("content-length") {
            let length: u64 = length.parse().expect("a length");
            self.some(length, &mut response.body)?;
            return Ok(());
        }
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        loop {
            let size = u64::from_str_radix(&self.line()?, 16).expect("a chunk's size");
            if size > 0 {
                self.some(size, &mut response.body)?;
                response.chunks.push(size as usize);
            }
            assert_eq!(self.line()?, "", "a chunk is closed by CR LF");
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn some(&mut self, bytes: u64, into: &mut Vec<u8>) -> std::io::Result<()> {
        let read = (&mut self.reader).take(bytes).read_to_end(into)?;
        if read as u64 == bytes { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads on until the connection ends; the error if it was no clean end.
    fn end(&mut self) -> Option<std::io::ErrorKind> {
        self.reader.read_to_end(&mut Vec::new()).err().map(|error| error.kind())
    }
}

fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "/v1/messages",
        Wire::OpenAiChat => "/v1/chat/completions",
    }
}

fn headers(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\n",
        Wire::OpenAiChat => "Content-Type: application/json\r\n",
    }
}

/// A well-formed agent request with these messages (without the chat wire's system message).
fn request(wire: Wire, messages: Value) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "model": "model-1", "max_tokens": 100, "stream": true, "system": "be good",
            "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
            "messages": messages,
        }),
        Wire::OpenAiChat => {
            let mut all = vec![json!({"role": "system", "content": "be good"})];
            all.extend(messages.as_array().expect("a list").iter().cloned());
            json!({
                "model": "model-1", "max_tokens": 100, "stream": true, "stream_options": {"include_usage": true},
                "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
                "messages": all,
            })
        }
    }
}

fn hello() -> Value {
    json!([{"role": "user", "content": "hello"}])
}

fn judge_request(wire: Wire) -> Value {
    let mut body = request(wire, hello());
    match wire {
        Wire::Anthropic => body["tools"][0]["name"] = json!("verdict"),
        Wire::OpenAiChat => body["tools"][0]["function"]["name"] = json!("verdict"),
    }
    body
}

/// Both wires' messages of one round: a call with this id, and its result.
fn round(wire: Wire, id: &str) -> [Value; 2] {
    match wire {
        Wire::Anthropic => [
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "bash", "input": {}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]}),
        ],
        Wire::OpenAiChat => [
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": "ok"}),
        ],
    }
}

/// What an independent reading of a stream gives: text, thinking, calls as (id, name, arguments), stop, usage as
/// (input, output, cache read).
#[derive(Debug, Default, PartialEq)]
struct Read1 {
    text: String,
    thinking: String,
    calls: Vec<(String, String, String)>,
    stop: String,
    usage: Option<(u64, u64, u64)>,
}

fn read(wire: Wire, response: &Response) -> Read1 {
    let mut out = Read1::default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (event, data) in response.events() {
        match wire {
            Wire::Anthropic => {
                assert_eq!(data["type"], event.as_str(), "the event's name is the data's type");
                let (block, delta) = (&data["content_block"], &data["delta"]);
                if block["type"] == "tool_use" {
                    assert_eq!(block["input"], json!({}));
                    out.calls.push((text(&block["id"]), text(&block["name"]), String::new()));
                }
                out.text += &text(&delta["text"]);
                out.thinking += &text(&delta["thinking"]);
                if delta["type"] == "input_json_delta" {
                    out.calls.last_mut().expect("a call is open").2 += &text(&delta["partial_json"]);
                }
                if event == "message_delta" {
                    out.stop = text(&delta["stop_reason"]);
                    let usage = &data["usage"];
                    let part = |name: &str| usage[name].as_u64().unwrap_or_default();
                    let cached = part("cache_read_input_tokens");
                    let input = part("input_tokens") + part("cache_creation_input_tokens") + cached;
                    out.usage = usage.is_object().then(|| (input, part("output_tokens"), cached));
                }
            }
            Wire::OpenAiChat => {
                let choice = &data["choices"][0];
                out.text += &text(&choice["delta"]["content"]);
                out.thinking += &text(&choice["delta"]["reasoning_content"]);
                for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                    let index = call["index"].as_u64().expect("an index") as usize;
                    if index == out.calls.len() {
                        out.calls.push((text(&call["id"]), text(&call["function"]["name"]), String::new()));
                    }
                    out.calls[index].2 += &text(&call["function"]["arguments"]);
                }
                out.stop += &text(&choice["finish_reason"]);
                if let Some(usage) = data.get("usage") {
                    let part = |name: &str| usage[name].as_u64().expect("a number");
                    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
                    out.usage = Some((part("prompt_tokens"), part("completion_tokens"), cached));
                }
            }
        }
    }
    out
}

// ------------------------------------------------------------------------------------------------ the wires

#[test]
fn both_wires_stream_the_same_script() {
    for wire in Wire::ALL {
        let provider = Script::new()
            .agent(
                Reply::thinking("hm, let me think about this for a while")
                    .and_text("Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt")
                    .and_call("bash", json!({"command": "echo 'a long enough command to need several deltas'"}))
                    .and_raw_call("file-read", "{\"path\": 7")
                    .id("mine")
                    .usage_of(Usage { input: 1000, output: 50, cache_read: 600, cache_write: 100, ..Usage::default() }),
            )
            .judge(Reply::verdict("unmet", "r", "n"))
            .start();
        let mut client = Client::new(&provider);
        let response = client.ask(wire, &request(wire, hello()));
        assert_eq!((response.status, response.whole), (200, true));
        assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let got = read(wire, &response);
        assert_eq!(got.text, "Grüße, 世界 — und noch etwas mehr Text, damit es mehrere Stücke gibt");
        assert_eq!(got.thinking, "hm, let me think about this for a while");
        let command = json!({"command": "echo 'a long enough command to need several deltas'"}).to_string();
        let call = |id: &str, name: &str, arguments: &str| (id.to_owned(), name.to_owned(), arguments.to_owned());
        assert_eq!(got.calls, [call("call_1_2", "bash", &command), call("mine", "file-read", "{\"path\": 7")]);
        assert_eq!(got.stop, if wire == Wire::Anthropic { "tool_use" } else { "tool_calls" });
        assert_eq!(got.usage, Some((1000, 50, 600)));

        let verdict = read(wire, &client.ask(wire, &judge_request(wire)));
        let arguments: Value = serde_json::from_str(&verdict.calls[0].2).expect("JSON");
        assert_eq!(arguments, json!({"verdict": "unmet", "reason": "r", "next_step": "n", "criteria": []}));
        assert_eq!((provider.count(Lane::Agent), provider.count(Lane::Judge)), (1, 1));
        let served = provider.served_usage()[&Lane::Agent];
        let cache_write = if wire == Wire::Anthropic { 100 } else { 0 };
        assert_eq!(
            served,
            Usage { input: 1000, output: 50, cache_read: 600, cache_write, ..Usage::default() },
            "what the wire has no field for was not reported"
        );
        provider.finish();
    }
}

#[test]
fn the_anthropic_stream_has_the_vendors_order() {
    let provider = Script::new()
        .agent(Reply::thinking("t").and_block(json!({"type": "redacted_thinking", "data": "x"})).and_text("a"))
        .start();
    let response = Client::new(&provider).ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    let names: Vec<String> = response.events().into_iter().map(|(event, _)| event).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let events = response.events();
    assert_eq!(events[0].1["message"]["model"], "model-1", "the model that was asked for answers");
    assert_eq!(events[4].1["delta"]["type"], "signature_delta");
    assert_eq!(events[6].1["content_block"], json!({"type": "redacted_thinking", "data": "x"}));
    let indexes: Vec<_> = events.iter().filter_map(|(_, data)| data["index"].as_u64()).collect();
    assert_eq!(indexes, [0, 0, 0, 0, 1, 1, 2, 2, 2]);
    provider.finish();
}

#[test]
fn the_chat_stream_ends_as_servers_end_it() {
    let wire = Wire::OpenAiChat;
    let provider = Script::new().agent(Reply::text("a").repeat(2)).start();
    let mut client = Client::new(&provider);
    let events = client.ask(wire, &request(wire, hello())).events();
    let n = events.len();
    assert_eq!(events[n - 1].1, "[DONE]");
    assert_eq!(events[n - 2].1["choices"], json!([]), "usage comes in a chunk of its own");
    assert_eq!(events[n - 3].1["choices"][0]["finish_reason"], "stop");
    let mut silent = request(wire, hello());
    silent.as_object_mut().expect("a map").remove("stream_options");
    assert_eq!(read(wire, &client.ask(wire, &silent)).usage, None, "usage is for who asks for it");
    assert_eq!(provider.served().iter().filter(|served| served.usage.is_some()).count(), 1);
    provider.finish();
}

#[test]
fn stops_are_translated_and_usage_can_be_missing() {
    let cases = [
        ("end", "end_turn", "stop"),
        ("max_tokens", "max_tokens", "length"),
        ("refusal", "refusal", "content_filter"),
        ("pause", "pause_turn", "stop"),
        ("something_new", "something_new", "something_new"),
    ];
    for (stop, anthropic, chat) in cases {
        for (wire, expected) in [(Wire::Anthropic, anthropic), (Wire::OpenAiChat, chat)] {
            let provider = Script::new().agent(Reply::text("a").stop(stop).no_usage()).start();
            let response = Client::new(&provider).ask(wire, &request(wire, hello()));
            let got = read(wire, &response);
            assert_eq!((got.stop.as_str(), got.usage), (expected, None));
            assert!(!response.body.windows(5).any(|w| w == b"usage"), "no usage at all");
            provider.finish();
        }
    }
}

#[test]
fn usage_is_computed_from_the_body_when_the_script_gives_none() {
    for wire in Wire::ALL {
        let provider = Script::new().agent(Reply::text("12345678")).start();
        let body = request(wire, hello());
        let got = read(wire, &Client::new(&provider).ask(wire, &body));
        let input = (body.to_string().len() as u64).div_ceil(4);
        assert_eq!(got.usage, Some((input, 2, 0)));
        provider.finish();
    }
}

// ------------------------------------------------------------------------------------------------ transport

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
    for wire in Wire::ALL {
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
            assert_eq!(response.body[..cut.min(30)], whole.body[..cut.min(30)]);
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
        let body = request(Wire::Anthropic, hello()).to_string();
        client.send(
            format!(
                "POST /v1/messages HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
                headers(Wire::Anthropic),
                body.len()
            )
            .as_bytes(),
        );
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
    let body = request(Wire::Anthropic, hello()).to_string();
    client.send(
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
            headers(Wire::Anthropic),
            body.len()
        )
        .as_bytes(),
    );
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
        let body = request(Wire::Anthropic, hello()).to_string();
        client.send(
            format!(
                "POST /v1/messages HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
                headers(Wire::Anthropic),
                body.len()
            )
            .as_bytes(),
        );
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
    for wire in Wire::ALL {
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
    for wire in Wire::ALL {
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

// ------------------------------------------------------------------------------------------------ scripts

#[test]
fn an_exhausted_script_answers_500_and_is_a_failure() {
    let provider = Script::new().agent(Reply::text("only")).start();
    let mut client = Client::new(&provider);
    let body = request(Wire::Anthropic, hello());
    assert_eq!(client.ask(Wire::Anthropic, &body).status, 200);
    assert_eq!(provider.remaining(Lane::Agent), Some(0));
    let response = client.ask(Wire::Anthropic, &body);
    assert_eq!((response.status, response.body.as_slice()), (500, &br#"{"error":"script exhausted"}"#[..]));
    assert_eq!(response.header("x-should-retry"), Some("false"), "so that the run ends at once");
    assert_eq!(provider.problems(), ["request 2 (agent 2): script exhausted"]);
    for end in [Provider::finish as fn(Provider), drop] {
        let provider = Script::new().start();
        Client::new(&provider).ask(Wire::Anthropic, &body);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(provider)));
        let message = *ended.expect_err("it must panic").downcast::<String>().expect("a message");
        assert!(message.contains("request 1 (agent 1): script exhausted"), "{message}");
    }
    provider.take_problems();
}

#[test]
fn replies_repeat_and_can_be_added_and_computed() {
    let provider = Script::new()
        .agent(Reply::text("twice").repeat(2))
        .agent(respond_with(|request| Reply::text(&format!("you said {}", request.new_text()))).repeat(1))
        .start();
    let mut client = Client::new(&provider);
    let body = request(Wire::OpenAiChat, hello());
    let mut ask = || read(Wire::OpenAiChat, &client.ask(Wire::OpenAiChat, &body)).text;
    assert_eq!(provider.remaining(Lane::Agent), Some(3));
    assert_eq!([ask(), ask(), ask()], ["twice", "twice", "you said hello"]);
    provider.push(Lane::Agent, Reply::text("more").forever());
    assert_eq!(provider.remaining(Lane::Agent), None);
    assert_eq!([ask(), ask()], ["more", "more"]);
    provider.finish();
}

#[test]
fn ids_differ_from_request_to_request() {
    let provider = Script::new().agent(Reply::bash("true").forever()).start();
    let mut client = Client::new(&provider);
    let body = request(Wire::Anthropic, hello());
    let mut id = || read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).calls.remove(0).0;
    assert_ne!(id(), id());
    provider.finish();
}

#[test]
fn hooks_run_when_the_request_is_there_and_before_its_answer() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (first, second) = (Arc::clone(&seen), Arc::clone(&seen));
    let before_reply = Arc::clone(&seen);
    let provider = Script::new()
        .on_request(2, move |request| {
            assert_eq!(request.lane, Lane::Judge);
            first.fetch_add(1, Ordering::SeqCst);
        })
        .on_lane_request(Lane::Agent, 2, move |request| {
            assert_eq!((request.n, request.lane_n), (3, 2));
            second.fetch_add(10, Ordering::SeqCst);
        })
        .agent(Reply::text("a"))
        .agent(respond_with(move |_| Reply::text(&before_reply.load(Ordering::SeqCst).to_string())))
        .judge(Reply::verdict("met", "", ""))
        .start();
    let mut client = Client::new(&provider);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    client.ask(Wire::Anthropic, &judge_request(Wire::Anthropic));
    let last = client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    assert_eq!(read(Wire::Anthropic, &last).text, "11");
    provider.finish();
}

#[test]
fn a_closure_that_panics_is_a_failure_of_the_test() {
    let provider = Script::new().agent(Reply::text("a")).on_request(1, |_| panic!("not what I expected")).start();
    let mut client = Client::new(&provider);
    let body = request(Wire::Anthropic, hello()).to_string();
    client.send(
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
            headers(Wire::Anthropic),
            body.len()
        )
        .as_bytes(),
    );
    client.end();
    assert!(provider.served().is_empty());
    assert_eq!(provider.take_problems(), ["a closure of the test panicked: not what I expected"]);
}

#[test]
fn gates_hold_one_reply_or_all() {
    let gate = Gate::new();
    let provider = Script::new().agent(Reply::text("a").held(&gate)).agent(Reply::text("b")).start();
    let ask = |provider: &Provider| {
        let mut client = Client::new(provider);
        std::thread::spawn(move || {
            read(Wire::Anthropic, &client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()))).text
        })
    };
    let held = ask(&provider);
    gate.wait_until_held(SOON);
    assert!(provider.requests().len() == 1 && provider.remaining(Lane::Agent) == Some(1));
    gate.release();
    assert_eq!(held.join().expect("an answer"), "a");
    let all = provider.hold();
    let held = ask(&provider);
    all.wait_until_held(SOON);
    assert!(!held.is_finished());
    all.release();
    assert_eq!(held.join().expect("an answer"), "b");
    provider.finish();
}

#[test]
fn a_light_provider_counts_and_keeps_nothing() {
    let provider = Script::new().agent(Reply::text("a").forever()).light().start();
    let mut client = Client::new(&provider);
    let malformed = json!({"messages": []});
    let response = client.ask(Wire::Anthropic, &malformed);
    assert!(response.whole);
    assert_eq!((provider.count(Lane::Agent), provider.requests()[0].body.len()), (1, 0));
    provider.finish();
}

#[test]
fn a_script_file_says_the_same_as_the_builder() {
    let yaml = r#"
key: the-key
agent:
  - just text
  - {thinking: hm, text: "now", calls: [{name: bash, arguments: {command: ls}}, {name: x, arguments: "{bad", id: mine}]}
  - {bash: "echo a", usage: {input: 10, output: 2, cache_read: 4}}
  - {thinking: {text: t, signature: s}, complete: done, usage: none, stop: max_tokens}
  - {status: 429, headers: {retry-after: 1}, body: {error: slow}}
  - {overflow: 1000}
  - {text: a, cut_after_bytes: 5}
  - {raw: "data: x\n\n"}
  - {text: z, split: 3, repeat: forever}
judge:
  - {verdict: unmet, reason: r, next_step: n, criteria: [{index: 1, met: true, evidence: e}]}
"#;
    let json = serde_json::to_string(&serde_yaml::from_str::<Value>(yaml).expect("YAML")).expect("JSON");
    for script in [Script::from_yaml(yaml), Script::from_json(&json)] {
        let provider = script.expect("a valid script").start();
        let wire = Wire::OpenAiChat;
        let headers = format!("{}Authorization: Bearer the-key\r\n", headers(wire));
        let mut client = Client::new(&provider);
        let mut ask = |body: Value| client.post(path(wire), &headers, body.to_string().as_bytes());
        let mut agent = || ask(request(wire, hello()));
        assert_eq!(read(wire, &agent()).text, "just text");
        let second = read(wire, &agent());
        assert_eq!((second.thinking.as_str(), second.text.as_str()), ("hm", "now"));
        assert_eq!(second.calls[0].2, r#"{"command":"ls"}"#);
        assert_eq!(second.calls[1], ("mine".to_owned(), "x".to_owned(), "{bad".to_owned()));
        assert_eq!(read(wire, &agent()).usage, Some((10, 2, 4)));
        let fourth = read(wire, &agent());
        assert_eq!((fourth.calls[0].1.as_str(), fourth.usage, fourth.stop.as_str()), ("goal-complete", None, "length"));
        let fifth = agent();
        assert_eq!((fifth.status, fifth.header("retry-after")), (429, Some("1")));
        assert_eq!(fifth.body, br#"{"error":"slow"}"#);
        assert_eq!(agent().status, 400);
        let cut = agent();
        assert_eq!((cut.body.len(), cut.whole), (5, false));
        let mut client = Client::new(&provider);
        let mut ask = |body: Value| client.post(path(wire), &headers, body.to_string().as_bytes());
        assert_eq!(ask(request(wire, hello())).body, b"data: x\n\n");
        for _ in 0..2 {
            assert!(ask(request(wire, hello())).chunks.iter().all(|size| *size <= 3));
        }
        let verdict: Value = serde_json::from_str(&read(wire, &ask(judge_request(wire))).calls[0].2).expect("JSON");
        assert_eq!(verdict["criteria"][0]["evidence"], "e");
        provider.finish();
    }
}

#[test]
fn a_bad_script_file_is_refused_with_its_place() {
    for (yaml, place) in [
        ("agents: []", "agents"),
        ("agent: [{txt: a}]", "agent[0]: unknown field `txt`"),
        ("agent: [a, {text: a, repeat: 0}]", "agent[1]: `repeat`"),
        ("agent: [{text: a, repeat: always}]", "agent[0]: `repeat`"),
        ("judge: [{reason: r}]", "judge[0]: `reason`"),
        ("agent: [{text: a, split: 0}]", "agent[0]: `split`"),
        ("agent: [{text: a, usage: some}]", "agent[0]: `usage`"),
        ("agent: [{text: a, status: 99}]", "agent[0]: `status`"),
        ("agent: [{text: a, stall_after_bytes: 3}]", "agent[0]: `stall_after_bytes`"),
        ("agent: [", ""),
    ] {
        let Err(error) = Script::from_yaml(yaml) else { panic!("{yaml} is no script") };
        assert!(error.contains(place), "{yaml}: {error}");
    }
    let missing = Script::from_file(std::path::Path::new("/nowhere/script.yaml")).err().expect("no such file");
    assert!(missing.starts_with("/nowhere/script.yaml: "), "{missing}");
}

// ------------------------------------------------------------------------------------------------ the rules

/// The complaints about one request, without their «request 1 (agent 1): ».
fn complaints(wire: Wire, body: &Value) -> Vec<String> {
    let provider = Script::new().agent(Reply::text("a").forever()).judge(Reply::text("a").forever()).start();
    Client::new(&provider).ask(wire, body);
    stripped(provider.take_problems())
}

fn stripped(problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| problem.split_once("): ").expect("it names the request").1.to_owned()).collect()
}

#[track_caller]
fn assert_complains(wire: Wire, messages: Value, about: &str) {
    let body = request(wire, messages);
    let found = complaints(wire, &body);
    assert!(found.iter().any(|complaint| complaint.contains(about)), "{}: {about:?} not in {found:?}", wire.name());
}

#[test]
fn well_formed_requests_are_left_in_peace() {
    let anthropic = json!([
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "b", "name": "bash", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "", "is_error": true},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}]},
            {"type": "text", "text": "a note"}]},
        {"role": "user", "content": "a second one in a row"},
    ]);
    assert_eq!(complaints(Wire::Anthropic, &request(Wire::Anthropic, anthropic)), Vec::<String>::new());
    let chat = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "not JSON"}}]},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "system", "content": "a note"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    ]);
    assert_eq!(complaints(Wire::OpenAiChat, &request(Wire::OpenAiChat, chat)), Vec::<String>::new());
    for wire in Wire::ALL {
        assert_eq!(complaints(wire, &judge_request(wire)), Vec::<String>::new());
    }
}

#[test]
fn settings_are_checked() {
    for wire in Wire::ALL {
        let cases: [(&str, Value, &str); 10] = [
            ("model", json!(""), "`model`"),
            ("model", Value::Null, "`model`"),
            ("stream", json!(false), "`stream`"),
            ("max_tokens", json!(0), "output limit"),
            ("max_tokens", json!(-1), "output limit"),
            ("max_tokens", json!(1.5), "output limit"),
            ("max_tokens", Value::Null, "output limit"),
            ("messages", json!([]), "`messages`"),
            ("tools", json!([]), "`tools`"),
            (
                "tool_choice",
                json!({"type": "tool", "name": "nothing", "function": {"name": "nothing"}}),
                "forces nothing",
            ),
        ];
        for (key, value, about) in cases {
            let mut body = request(wire, hello());
            body[key] = value;
            let found = complaints(wire, &body);
            assert!(found.iter().any(|complaint| complaint.contains(about)), "{key}: {about:?} not in {found:?}");
        }
        let mut twice = request(wire, hello());
        let tool = twice["tools"][0].clone();
        twice["tools"].as_array_mut().expect("a list").push(tool);
        assert_eq!(complaints(wire, &twice), ["tools[1]: bash is offered twice"]);
    }
    let mut no_schema = request(Wire::Anthropic, hello());
    no_schema["tools"][0]["input_schema"] = json!("none");
    assert_eq!(complaints(Wire::Anthropic, &no_schema), ["tools[0]: the schema of bash is no object's"]);
    let mut no_name = request(Wire::OpenAiChat, hello());
    no_name["tools"][0]["function"]["name"] = json!("with space");
    assert_eq!(complaints(Wire::OpenAiChat, &no_name), ["tools[0]: \"with space\" is no name for a tool"]);
    let mut both = request(Wire::OpenAiChat, hello());
    both["max_completion_tokens"] = json!(5);
    assert_eq!(complaints(Wire::OpenAiChat, &both).len(), 1, "two limits");
    let mut empty = request(Wire::Anthropic, hello());
    empty["system"] = json!([{"type": "text", "text": " "}]);
    assert_eq!(complaints(Wire::Anthropic, &empty).len(), 1, "an empty system block");
}

#[test]
fn invalid_json_and_no_http_are_named() {
    let provider = Script::new().agent(Reply::text("a").forever()).start();
    let response = Client::new(&provider).post("/v1/messages", headers(Wire::Anthropic), b"{\"model\":");
    assert!(response.whole, "it is answered all the same");
    let found = provider.take_problems();
    assert!(found.len() == 1 && found[0].contains("not valid JSON"), "{found:?}");

    let mut client = Client::new(&provider);
    client.send(b"hello?\r\n\r\n");
    client.end();
    let found = provider.take_problems();
    assert!(found.len() == 1 && found[0].contains("no HTTP"), "{found:?}");

    let mut client = Client::new(&provider);
    client.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    drop(client);
    let response = Client::new(&provider).post("/v1/nothing", "", b"{}");
    assert_eq!(response.status, 404);
    let mut client = Client::new(&provider);
    client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().expect("an answer").status, 404);
    assert_eq!(provider.others(), ["POST /v1/nothing", "GET /v1/models"]);
    let found = provider.take_problems();
    assert_eq!(found, ["a request for something that does not exist: POST /v1/nothing"], "a client may die or look");
}

#[test]
fn headers_and_the_key_are_checked() {
    let keyed = || Script::new().agent(Reply::text("a").forever()).key("sk-right").start();
    let keyless = || Script::new().agent(Reply::text("a").forever()).start();
    for wire in Wire::ALL {
        let key_header = |key: &str| match wire {
            Wire::Anthropic => format!("x-api-key: {key}\r\n"),
            Wire::OpenAiChat => format!("Authorization: Bearer {key}\r\n"),
        };
        let ask = |provider: Provider, more: &str, body: &Value| {
            let headers = format!("{}{more}", headers(wire));
            Client::new(&provider).post(path(wire), &headers, body.to_string().as_bytes());
            stripped(provider.take_problems())
        };
        let body = request(wire, hello());
        assert_eq!(ask(keyed(), &key_header("sk-right"), &body), Vec::<String>::new());
        assert_eq!(ask(keyed(), &key_header("sk-wrong"), &body), ["another API key than the expected one"]);
        assert_eq!(ask(keyed(), "", &body), ["no API key"]);
        assert_eq!(ask(keyless(), &key_header("sk-any"), &body), ["an API key although the endpoint is keyless"]);
        let leaking = request(wire, json!([{"role": "user", "content": "echo sk-right"}]));
        assert_eq!(ask(keyed(), &key_header("sk-right"), &leaking), ["the body contains a secret"]);
    }
    let provider = keyless();
    let body = request(Wire::Anthropic, hello()).to_string();
    Client::new(&provider).post("/v1/messages", "", body.as_bytes());
    let found = stripped(provider.take_problems());
    assert_eq!(found, ["content-type is None, not application/json", "no anthropic-version header"]);
}

#[test]
fn secrets_are_found_wherever_they_stand() {
    let secret = "hunter\"2/ü";
    for (where_, body, path, header) in [
        (
            "body",
            request(Wire::Anthropic, json!([{"role": "user", "content": format!("a {secret} b")}])),
            "/v1/messages",
            "",
        ),
        ("URL", request(Wire::Anthropic, hello()), "/v1/messages?k=hunter\"2/ü", ""),
        ("header x-note", request(Wire::Anthropic, hello()), "/v1/messages", "x-note: hunter\"2/ü\r\n"),
    ] {
        let provider = Script::new().agent(Reply::text("a")).secret(secret).start();
        let headers = format!("{}{header}", headers(Wire::Anthropic));
        Client::new(&provider).post(path, &headers, body.to_string().as_bytes());
        let found = stripped(provider.take_problems());
        assert_eq!(found.len(), 1, "{where_}");
        assert!(found[0].contains(where_), "{found:?}");
    }
}

#[test]
fn every_call_has_one_result_right_after_it_and_every_result_its_call() {
    for wire in Wire::ALL {
        let user = json!({"role": "user", "content": "go"});
        let [call, result] = round(wire, "a");
        let [other_call, other_result] = round(wire, "b");
        assert_complains(wire, json!([user, call]), "the call a has no result");
        assert_complains(wire, json!([user, call, user]), "the call a before it has no result");
        assert_complains(wire, json!([user, call, user, result]), "the result of a has no call in the message before");
        assert_complains(wire, json!([user, result]), "the result of a has no call");
        assert_complains(wire, json!([user, call, other_result]), "the result of b has no call");
        assert_complains(
            wire,
            json!([user, call, result, result]),
            match wire {
                Wire::Anthropic => "the result of a has no call in the message before",
                Wire::OpenAiChat => "two results for the call a",
            },
        );
        assert_complains(wire, json!([user, call, other_call, other_result]), "the call a before it has no result");
        assert_complains(wire, json!([user, call, result, call, result]), "the call id a was used before");
    }
    let user = json!({"role": "user", "content": "go"});
    let [call, _] = round(Wire::Anthropic, "a");
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "ok"});
    let twice = json!([user, call, {"role": "user", "content": [result, result]}]);
    assert_complains(Wire::Anthropic, twice, "two results for the call a");
    let late = json!([user, call, {"role": "user", "content": [{"type": "text", "text": "first"}, result]}]);
    assert_complains(Wire::Anthropic, late, "the result of a stands behind other content");
}

#[test]
fn roles_and_contents_are_the_wires_own() {
    let user = json!({"role": "user", "content": "go"});
    let said = json!({"role": "assistant", "content": "ok"});
    for wire in Wire::ALL {
        assert_complains(wire, json!([user, {"role": "operator", "content": "x"}]), "role \"operator\"");
        assert_complains(wire, json!([user, said, said, user]), "two assistant messages in a row");
        assert_complains(wire, json!([user, said]), "the last message is the assistant's");
        assert_complains(wire, json!([{"role": "user", "content": []}]), "has no content");
        assert_complains(wire, json!([{"role": "user"}]), "has no content");
    }
    assert_complains(Wire::Anthropic, json!([said, user]), "the first message is not the user's");
    assert_complains(Wire::Anthropic, json!([user, {"role": "system", "content": "x"}]), "role \"system\"");
    assert_complains(Wire::Anthropic, json!([user, {"role": "tool", "content": "x"}]), "role \"tool\"");
    assert_complains(Wire::Anthropic, json!([{"role": "user", "content": " \n"}]), "has an empty text");
    let call = |block: Value| json!([user, {"role": "assistant", "content": [block]}]);
    let text = json!({"type": "tool_use", "id": "a", "name": "bash", "input": "ls"});
    assert_complains(Wire::Anthropic, call(text), "the input of call a is no object");
    assert_complains(Wire::Anthropic, call(json!({"type": "tool_use", "name": "x", "input": {}})), "without an id");
    let dotted = json!({"type": "tool_use", "id": "a.b", "name": "x", "input": {}});
    assert_complains(Wire::Anthropic, call(dotted), "other characters");

    let mut headless = request(Wire::OpenAiChat, hello());
    headless["messages"].as_array_mut().expect("a list").remove(0);
    assert_eq!(complaints(Wire::OpenAiChat, &headless), ["the first message is the user's, not the system's"]);
    assert_complains(Wire::OpenAiChat, json!([{"role": "user", "content": ""}]), "has no content");
    let nothing = json!([user, {"role": "assistant", "content": null}, user]);
    assert_complains(Wire::OpenAiChat, nothing, "neither text nor calls");
    let empty = json!([user, {"role": "assistant", "content": "x", "tool_calls": []}, user]);
    assert_complains(Wire::OpenAiChat, empty, "`tool_calls` is an empty list");
    let object = json!([user, {"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": {}}}]}]);
    assert_complains(Wire::OpenAiChat, object, "the arguments of call a are no text");
}

#[test]
fn a_paused_turn_is_resent_as_it_is() {
    let provider = Script::new().agent(Reply::text("wait").stop("pause")).agent(Reply::text("done")).start();
    let mut client = Client::new(&provider);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
    let messages = json!([hello()[0], {"role": "assistant", "content": "wait"}]);
    client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
    provider.finish();
}

#[test]
fn thinking_comes_back_as_it_was_sent_and_in_its_place() {
    let block = json!({"type": "server_note", "data": {"z": 1, "a": 2}});
    let reply = || {
        Reply::thinking("first")
            .and_call("bash", json!({}))
            .id("a")
            .and_thinking("second")
            .and_block(block.clone())
            .and_call("bash", json!({}))
            .id("b")
    };
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
    let thought = |text: &str, place: usize| json!({"type": "thinking", "thinking": text, "signature": format!("c2lnbmF0dXJl+1/{place}==")});
    let (first, second) = (thought("first", 0), thought("second", 2));
    let changed = json!({"type": "thinking", "thinking": "First", "signature": first["signature"]});
    let marked = json!({"type": "thinking", "thinking": "first", "signature": first["signature"], "cache_control": {"type": "ephemeral"}});
    let reordered = json!({"type": "server_note", "data": {"a": 2, "z": 1}});
    let after = |content: &[&Value]| {
        let provider = Script::new().agent(reply()).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        let results: Vec<Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}))
            .collect();
        let results = if results.is_empty() { json!("go on") } else { json!(results) };
        let messages =
            json!([hello()[0], {"role": "assistant", "content": content}, {"role": "user", "content": results}]);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
        stripped(provider.take_problems())
    };
    let (a, b) = (&call("a"), &call("b"));
    let text = &json!({"type": "text", "text": "by the way"});
    assert_eq!(after(&[&first, a, &second, &block, b]), Vec::<String>::new());
    assert_eq!(after(&[&first, text, a, &second, &block, b]), Vec::<String>::new(), "texts are no thinking");
    let missing = ["messages[1]: its thinking is missing or not in its place"];
    assert_eq!(after(&[a, &second, &block, b]), missing);
    assert_eq!(after(&[a, b]), missing);
    assert_eq!(after(&[&first, &second, a, &block, b]), missing);
    assert_eq!(after(&[&first, a, &block, &second, b]), missing);
    for wrong in [&changed, &marked] {
        let found = after(&[wrong, a, &second, &block, b]);
        assert!(found[0].contains("not one that was sent, byte for byte"), "{found:?}");
    }
    let found = after(&[&first, a, &second, &reordered, b]);
    assert_eq!(found, ["messages[1]: the server_note block was serialized anew"]);
}

#[test]
fn thinking_before_a_text_is_kept_too() {
    let ask_again = |with: bool| {
        let provider = Script::new().agent(Reply::thinking("t").and_text("done")).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, hello()));
        let mut content = vec![json!({"type": "text", "text": "done"})];
        if with {
            content.insert(0, json!({"type": "thinking", "thinking": "t", "signature": "c2lnbmF0dXJl+1/0=="}));
        }
        let messages =
            json!([hello()[0], {"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]);
        client.ask(Wire::Anthropic, &request(Wire::Anthropic, messages));
        provider.take_problems().len()
    };
    assert_eq!((ask_again(true), ask_again(false)), (0, 1));
}

#[test]
fn reasoning_on_the_chat_wire_is_what_was_sent() {
    let ask_again = |reasoning: &str| {
        let provider = Script::new().agent(Reply::thinking("because").and_text("done")).agent(Reply::text("x")).start();
        let mut client = Client::new(&provider);
        client.ask(Wire::OpenAiChat, &request(Wire::OpenAiChat, hello()));
        let said = json!({"role": "assistant", "content": "done", "reasoning_content": reasoning});
        let messages = json!([hello()[0], said, {"role": "user", "content": "go on"}]);
        client.ask(Wire::OpenAiChat, &request(Wire::OpenAiChat, messages));
        stripped(provider.take_problems())
    };
    assert_eq!(ask_again("because"), Vec::<String>::new());
    let wrong = ask_again("why not");
    assert!(wrong.len() == 1 && wrong[0].contains("the reasoning is not one that was sent"), "{wrong:?}");
}

/// Sends these bodies to an endless agent and gives the complaints.
fn in_a_row(script: Script, wire: Wire, bodies: &[String]) -> Vec<String> {
    let provider = script.agent(Reply::text("x").forever()).judge(Reply::text("x").forever()).start();
    let mut client = Client::new(&provider);
    for body in bodies {
        client.post(path(wire), headers(wire), body.as_bytes());
    }
    provider.take_problems()
}

#[test]
fn each_agent_request_continues_the_one_before() {
    for wire in Wire::ALL {
        let user = json!({"role": "user", "content": "go"});
        let [call, result] = round(wire, "a");
        let [call2, result2] = round(wire, "b");
        let body = |messages: Value| request(wire, messages).to_string();
        let first = body(json!([user]));
        let second = body(json!([user, call, result]));
        let third = body(json!([user, call, result, call2, result2]));
        let none = Vec::<String>::new();
        let row = |bodies: &[&String]| {
            in_a_row(Script::new(), wire, &bodies.iter().map(|b| (*b).clone()).collect::<Vec<_>>())
        };
        assert_eq!(row(&[&first, &first, &second, &third]), none, "a retry, then on and on");
        let front = third.replace("\"max_tokens\":100", "\"max_tokens\":50");
        assert_eq!(row(&[&first, &second, &front]), none, "the front may differ");
        let judge = judge_request(wire).to_string();
        assert_eq!(row(&[&first, &judge, &second, &judge, &third]), none, "the judge's are each their own");

        let edited = third.replace("\"ok\"", "\"OK\"");
        let found = row(&[&first, &second, &edited]);
        assert!(
            found.len() == 1 && found[0].starts_with("request 3 (agent 3): the previous request is not a prefix"),
            "{found:?}"
        );
        assert!(found[0].contains("now:") && found[0].contains("OK"), "it shows the place: {found:?}");
        let spaced = third.replace("\"messages\":[", "\"messages\": [");
        assert_eq!(row(&[&first, &second, &spaced]).len(), 1, "byte for byte");
        let prompt = third.replace("be good", "be better");
        assert_eq!(row(&[&first, &second, &prompt]).len(), 1, "the head too");
        assert_eq!(row(&[&first, &second, &third, &second]).len(), 1, "and never back");
        assert_eq!(row(&[&first, &second, &edited, &edited]).len(), 1, "one break is one complaint");

        let rewrite = |script: Script| {
            in_a_row(script, wire, &[first.clone(), second.clone(), edited.clone(), third.clone()]).len()
        };
        assert_eq!(rewrite(Script::new()), 2);
        assert_eq!(rewrite(Script::new().allow_rewrites(1)), 1);
        assert_eq!(rewrite(Script::new().allow_rewrite()), 0);
    }
}

#[test]
fn sessions_are_told_apart_unless_there_is_only_one() {
    let wire = Wire::Anthropic;
    let [call, result] = round(wire, "a");
    let body = |messages: Value| request(wire, messages).to_string();
    let session = |name: &str| {
        let user = json!({"role": "user", "content": name});
        [body(json!([user])), body(json!([user, call, result]))]
    };
    let ([a1, a2], [b1, b2]) = (session("one"), session("two"));
    let bodies = [a1.clone(), b1.clone(), a2.clone(), b2.clone(), a1.clone(), a2.clone()];
    assert_eq!(in_a_row(Script::new(), wire, &bodies), Vec::<String>::new(), "side by side, and one anew");
    let found = in_a_row(Script::new().one_session(), wire, &[a1.clone(), b1]);
    assert_eq!(found.len(), 1, "a restart that changed its first message: {found:?}");
    assert_eq!(in_a_row(Script::new().one_session(), wire, &[a1, a2]), Vec::<String>::new());
}

#[test]
fn the_rest_runs_from_its_first_key_to_the_brackets() {
    let at = |body: &str| rest_start(body.as_bytes()).map(|start| body[start..].to_owned());
    assert_eq!(
        at(r#"{"model":"m","x":{"messages":[1]},"s":"\"tools\":","tools":[],"messages":[]}"#).as_deref(),
        Some(r#""tools":[],"messages":[]}"#)
    );
    assert_eq!(at(r#"{ "a" : [1, {"system": 2}] , "system":"s"}"#).as_deref(), Some(r#""system":"s"}"#));
    assert_eq!(at(r#"{"model":"m"}"#), None);
    assert_eq!(at("[]"), None);
    assert_eq!(at(r#"{"a"#), None);
    let mut late = request(Wire::Anthropic, hello());
    late["temperature"] = json!(1);
    let found = complaints(Wire::Anthropic, &late);
    assert!(found.len() == 1 && found[0].contains("to `]}`"), "a field behind the messages: {found:?}");
}

#[test]
fn the_lane_can_be_told_by_the_test() {
    let provider = Script::new()
        .lane_of(|body| (body["model"] == "judge-model").then_some(Lane::Judge))
        .agent(Reply::text("agent"))
        .judge(Reply::text("judge"))
        .start();
    let mut client = Client::new(&provider);
    let mut body = request(Wire::Anthropic, hello());
    assert_eq!(read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).text, "agent");
    body["model"] = json!("judge-model");
    assert_eq!(read(Wire::Anthropic, &client.ask(Wire::Anthropic, &body)).text, "judge");
    let mut forced = request(Wire::OpenAiChat, hello());
    forced["tool_choice"] = json!({"type": "function", "function": {"name": "verdict"}});
    assert_eq!(provider.judge_requests().len(), 1);
    client.ask(Wire::OpenAiChat, &forced);
    assert_eq!(provider.judge_requests().len(), 2, "forcing it is enough");
    provider.take_problems();
}

#[test]
fn requests_answer_what_tests_ask() {
    for wire in Wire::ALL {
        let provider = Script::new().agent(Reply::text("x")).start();
        let [call, result] = round(wire, "a");
        let messages = json!([{"role": "user", "content": "go"}, call, result, {"role": "user", "content": "a note"}]);
        Client::new(&provider).ask(wire, &request(wire, messages));
        let request = provider.wait_for_lane_request(Lane::Agent, 1, SOON);
        assert_eq!(request.system(), "be good");
        assert_eq!(request.tool_names(), ["bash"]);
        assert_eq!(request.max_tokens(), Some(100));
        let results = request.tool_results();
        assert_eq!((results.len(), results[0].id.as_str(), results[0].text.as_str()), (1, "a", "ok"));
        assert_eq!(request.new_text(), "a note");
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        assert!(request.rest().ends_with(b"]}") && request.rest().starts_with(b"\""));
        provider.finish();
    }
}
