//! Tests of the room.

mod compare;
mod cost;
mod format;
mod hostile;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::records::hex;
use super::*;
use crate::event::{Lane, Outcome, ToolStatus};
use crate::session::tests::{Lab, attempt, block_on, call, end, failed_attempt, frozen, run, settled, tool};
use crate::session::{Block, Fact, Message, Origin, Session, SessionError, WireAttempt};
use crate::world::{Body, HttpRequest, Secrets, Tag, Transport, TransportError};

const STREAM: &[u8] = b"data: {\"text\":\"\xc3\xa9\"}\r\n\r\ndata: [DONE]\n\n";
const NOT_UTF8: &[u8] = b"data: \xff\xfe cut \xf0\x9f\n";
/// What stands before every rest.
const FRONT: &[u8] = b"{\"model\":\"m\",";

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// A request's rest with so many messages.
fn rest(messages: &[&str]) -> String {
    let messages: Vec<_> = messages.iter().map(|text| json!({"content": text}).to_string()).collect();
    format!("\"messages\":[{}]}}", messages.join(","))
}

/// One call of a lane: a first attempt that failed, then the reply. `keep` bytes of `rest` stand in the log.
struct Call<'a> {
    lane: Lane,
    n: u64,
    rest: &'a str,
    keep: u64,
    body: &'a [u8],
    reads: &'a [u64],
}

impl Call<'_> {
    fn write(&self, session: &Session) {
        let &Call { lane, n, rest, keep, body, reads } = self;
        let sha256 = digest(rest);
        let Fact::Call(mut made) = call(lane, n) else { unreachable!() };
        made.digest.clone_from(&sha256);
        session.append(Fact::Call(made)).expect("appended");
        let headers = [("content-type", "text/event-stream"), ("request-id", "volatile")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let reply = WireAttempt {
            lane,
            n,
            attempt: 2,
            method: "POST",
            url: "http://127.0.0.1:9/v1",
            request_headers: &[],
            front: FRONT,
            // The whole request stands with the first attempt.
            keep: rest.len() as u64 - 2,
            add: &[&rest.as_bytes()[rest.len() - 2..]],
            sha256: &sha256,
            status: Some(200),
            response_headers: &headers,
            body,
            reads,
            end: "eof",
            ms: 1,
            redacted: false,
        };
        let refused = WireAttempt {
            attempt: 1,
            keep,
            add: &[&rest.as_bytes()[keep as usize..]],
            status: Some(429),
            body: b"{\"error\":\"slow down\"}",
            reads: &[0],
            ..reply
        };
        let refused = session.wire(&refused).expect("written");
        let (wire_offset, wire_bytes) = refused;
        let attempts = vec![
            crate::session::Attempt { wire_offset, wire_bytes, ..failed_attempt() },
            attempt(session.wire(&reply).expect("written")),
        ];
        if lane == Lane::Agent {
            let blocks = vec![Block::Text { text: format!("reply {n}") }];
            let said = Message::Assistant { blocks, interrupted: false, refused: None };
            session.append(Fact::Message(said)).expect("appended");
        }
        let Fact::Settled(mut over) = settled(lane, n, attempts) else { unreachable!() };
        if lane == Lane::Judge {
            over.reply = Some(vec![Block::Text { text: "judged".into() }]);
        }
        session.append(Fact::Settled(over)).expect("appended");
    }
}

fn first() -> String {
    rest(&["one"])
}

fn second() -> String {
    rest(&["one", "two"])
}

/// A session with two whole agent replies, one call that failed between them, one judge reply, one spooled output.
fn recorded(lab: &Lab) -> PathBuf {
    recorded_as(lab, "s", &second(), b"")
}

fn recorded_as(lab: &Lab, id: &str, second: &str, judged: &[u8]) -> PathBuf {
    let session = lab.create(id);
    session.append(frozen()).expect("appended");
    session.append(run("run-1")).expect("appended");
    let opening = Message::User { origin: Origin::Prompt, text: "one".into() };
    session.append(Fact::Message(opening)).expect("appended");
    let (lane, first) = (Lane::Agent, first());
    Call { lane, n: 1, rest: &first, keep: 0, body: STREAM, reads: &[0, 16, 20] }.write(&session);
    let spool = session.spool().put(bytes::Bytes::from_static(NOT_UTF8));
    let Fact::Tool(mut done) = tool("c1", ToolStatus::Ok) else { unreachable!() };
    done.spool = Some(spool);
    session.append(Fact::Tool(done)).expect("appended");
    // Spettro was killed within this one.
    session.append(call(Lane::Agent, 2)).expect("appended");
    Call { lane: Lane::Judge, n: 1, rest: "\"judge\":1}", keep: 0, body: judged, reads: &[] }.write(&session);
    let keep = first.len() as u64 - 2;
    Call { lane, n: 3, rest: second, keep, body: NOT_UTF8, reads: &[0] }.write(&session);
    session.append(end("run-1", Outcome::Met)).expect("appended");
    lab.dir(id)
}

fn pack_as(dir: &Path, out: &Path, parts: Parts) -> Result<Packed, CassetteError> {
    let how = Pack { parts, force: false, secrets: &Secrets::default(), allow: &[] };
    pack(&Tape::of_session(dir)?, out, &how)
}

fn packed(lab: &Lab, name: &str, parts: Parts) -> PathBuf {
    let out = lab.temp.path().join(name);
    pack_as(&recorded(lab), &out, parts).expect("packed");
    out
}

fn request(lane: Lane, n: u64, rest: &str) -> HttpRequest {
    let (front, rest) = (Bytes::from_static(b"{\"model\":\"any\","), rest.as_bytes());
    let (one, two) = rest.split_at(rest.len() / 2);
    HttpRequest {
        tag: Tag { lane, n, attempt: 1 },
        method: "POST",
        url: "http://unused".into(),
        headers: Vec::new(),
        body: Body(vec![front, Bytes::copy_from_slice(one), Bytes::copy_from_slice(two)]),
        connect_timeout: Duration::from_secs(1),
        ca_file: None,
    }
}

/// Status and chunks of an answer.
fn ask(player: &Player, lane: Lane, n: u64, rest: &str) -> Result<(u16, Vec<Vec<u8>>), TransportError> {
    block_on(async {
        let mut response = player.send(request(lane, n, rest)).await?;
        let mut chunks = Vec::new();
        while let Some(chunk) = response.body.next().await? {
            chunks.push(chunk.to_vec());
        }
        let kind = response.headers.iter().find(|(name, _)| name == "content-type");
        assert_eq!(kind.map(|(_, value)| value.as_str()), Some("text/event-stream"));
        Ok((response.status, chunks))
    })
}

#[test]
fn a_packed_session_answers_as_its_provider_did() {
    for (name, parts) in [
        ("x.cassette.zst", Parts::Everything),
        ("x.jsonl", Parts::Everything),
        ("x.cassette.zst", Parts::Replies),
        ("x.jsonl", Parts::Replies),
    ] {
        let lab = Lab::new();
        let out = packed(&lab, name, parts);
        assert_eq!(std::fs::metadata(&out).expect("made").permissions().mode() & 0o777, 0o600);
        let player = Player::open(&out).expect("opened");
        assert!(player.recorded());
        assert_eq!((player.count(Lane::Agent), player.count(Lane::Judge), player.count(Lane::Miner)), (2, 1, 0));
        let split = vec![STREAM[..16].to_vec(), STREAM[16..20].to_vec(), STREAM[20..].to_vec()];
        assert_eq!(ask(&player, Lane::Agent, 1, &first()).expect("served"), (200, split.clone()));
        assert_eq!(ask(&player, Lane::Judge, 1, "\"judge\":1}").expect("served"), (200, Vec::new()));
        assert_eq!(ask(&player, Lane::Agent, 2, &second()).expect("served"), (200, vec![NOT_UTF8.to_vec()]));
        // A retry, and a run that was resumed, get the same again.
        assert_eq!(ask(&player, Lane::Agent, 1, &first()).expect("served"), (200, split));
        assert!(player.mismatches().is_empty());
    }
}

#[test]
fn another_request_is_reported_and_served_all_the_same() {
    let lab = Lab::new();
    let player = Player::open(&packed(&lab, "x.jsonl", Parts::Replies)).expect("opened");
    ask(&player, Lane::Agent, 2, "changed").expect("served");
    let expected = Mismatch { lane: Lane::Agent, n: 2, recorded: digest(&second()), sent: digest("changed") };
    assert_eq!(player.mismatches(), [expected]);
}

#[test]
fn a_call_beyond_the_last_reply_is_a_miss() {
    let lab = Lab::new();
    let player = Player::open(&packed(&lab, "x.jsonl", Parts::Everything)).expect("opened");
    for (lane, n) in [(Lane::Agent, 3), (Lane::Agent, 0), (Lane::Judge, 2), (Lane::Summarizer, 1)] {
        let error = ask(&player, lane, n, "x").expect_err("a miss");
        assert!(matches!(&error, TransportError::Miss(text) if text.contains(lane.name())), "{error}");
    }
}

#[test]
fn the_head_says_what_it_is_and_a_stripped_copy_nothing_more() {
    let lab = Lab::new();
    let out = packed(&lab, "x.jsonl", Parts::Replies);
    let player = Player::open(&out).expect("opened");
    let head = player.head();
    assert_eq!((head.format.as_str(), head.source.as_ref()), ("1.0", None));
    assert_eq!(head.parts, ["replies"]);
    assert_eq!(head.goal.name, "demo");
    assert_eq!(head.lanes["agent"]["wire"], "openai-chat");
    assert_eq!(head.lanes["judge"]["window_tokens"], 1000);
    assert_eq!(head.provenance, "recorded from s against a local server");
    let text = std::fs::read_to_string(&out).expect("text");
    for hidden in ["hidden", "127.0.0.1", "request-id", "volatile", "slow down"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    assert!(text.lines().last().expect("an end").contains("\"outcome\":\"met\""));
}

#[test]
fn a_tape_is_the_same_from_a_folder_and_from_a_file() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    for name in ["x.cassette.zst", "x.jsonl"] {
        let out = lab.temp.path().join(name);
        let made = pack_as(&dir, &out, Parts::Everything).expect("packed");
        assert_eq!(made.bytes, std::fs::metadata(&out).expect("made").len());
        let counts = [("fact", 14), ("spool", 1), ("wire", 6)].map(|(kind, count)| (kind.to_owned(), count));
        assert_eq!(made.counts, counts.into());
        let (folder, file) = (Tape::of_session(&dir).expect("read"), Tape::of_file(&out).expect("read"));
        assert!(folder.end().is_none() && file.end().is_some());
        for tape in [&folder, &file] {
            assert!(tape.is_session());
            assert_eq!(tape.problems(), Vec::<String>::new());
            assert_eq!(tape.outcome(), Some(Outcome::Met));
            assert_eq!(tape.spool(1).expect("read").as_deref(), Some(NOT_UTF8));
            assert_eq!(tape.spool(2).expect("read"), None);
            let agent = tape.exchanges(Lane::Agent);
            let told: Vec<_> = agent.iter().map(|call| (call.n, call.attempts.len(), call.reply().is_some())).collect();
            assert_eq!(told, [(1, 2, true), (2, 0, false), (3, 2, true)]);
            for (call, rest) in [(&agent[0], first()), (&agent[2], second())] {
                assert_eq!(call.digest, digest(&rest));
                for attempt in &call.attempts {
                    let request = attempt.request.as_ref().expect("recorded");
                    assert_eq!(request.rest.to_vec(), rest.as_bytes());
                    assert_eq!((request.rest.len(), &request.front[..]), (rest.len() as u64, FRONT));
                }
            }
            assert_eq!(agent[2].said, Some(vec![Block::Text { text: "reply 3".into() }]));
            assert_eq!(tape.exchanges(Lane::Judge)[0].said, Some(vec![Block::Text { text: "judged".into() }]));
            assert_eq!((agent[0].attempts[0].status, agent[0].attempts[1].status), (Some(429), Some(200)));
            assert_eq!(agent[0].attempts[1].chunks().concat(), STREAM);
        }
        assert_eq!(folder.facts(), file.facts());
        assert_eq!(folder.head(), file.head());
        assert_eq!(event_digest(folder.facts()), file.end().and_then(|end| end.events.clone()).expect("a digest"));
        let source = file.head().source.clone().expect("a source");
        assert_eq!((source.session.as_str(), source.clock_start.is_empty()), ("s", false));
    }
}

#[test]
fn an_existing_name_is_kept_without_force() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    let out = lab.temp.path().join("x.jsonl");
    std::fs::write(&out, "mine").expect("written");
    let refused = pack_as(&dir, &out, Parts::Everything);
    assert!(matches!(refused, Err(CassetteError::Exists(path)) if path == out));
    assert_eq!(std::fs::read_to_string(&out).expect("read"), "mine");
    let how = Pack { parts: Parts::Everything, force: true, secrets: &Secrets::default(), allow: &[] };
    pack(&Tape::of_session(&dir).expect("read"), &out, &how).expect("replaced");
    Player::open(&out).expect("opened");
    let left: Vec<_> = lab.world.dir.list(lab.temp.path()).expect("a list").into_iter().map(|e| e.name).collect();
    assert_eq!(left, ["sessions", "workspace", "x.jsonl"], "nothing temporary is left");
}

#[test]
fn a_session_without_its_replies_makes_no_cassette() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    let session = lab.create("empty");
    session.append(frozen()).expect("appended");
    let nothing = pack_as(&lab.dir("empty"), &out, Parts::Everything);
    assert!(matches!(nothing, Err(CassetteError::Nothing(id)) if id == "empty"));
    let dir = recorded(&lab);
    let wire = std::fs::read(dir.join("wire.jsonl")).expect("read");
    std::fs::write(dir.join("wire.jsonl"), &wire[..wire.len() - 3]).expect("cut");
    let error = pack_as(&dir, &out, Parts::Replies).expect_err("refused");
    assert!(matches!(&error, CassetteError::Session(SessionError::Corrupt { line: 6, .. })), "{error}");
    std::fs::remove_file(dir.join("wire.jsonl")).expect("removed");
    assert!(matches!(pack_as(&dir, &out, Parts::Replies), Err(CassetteError::Session(SessionError::Io { .. }))));
    std::fs::write(dir.join("session.jsonl"), "").expect("emptied");
    let error = pack_as(&dir, &out, Parts::Replies);
    assert!(matches!(error, Err(CassetteError::Session(SessionError::Corrupt { .. }))));
    assert!(!out.exists());
}

#[test]
fn an_output_that_the_session_did_not_keep_is_packed_as_that() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    let dir = recorded(&lab);
    std::fs::remove_file(dir.join("spool/1")).expect("removed");
    pack_as(&dir, &out, Parts::Everything).expect("packed");
    assert_eq!(Tape::of_file(&out).expect("whole").spool(1).expect("read"), None);
}

#[test]
fn a_changed_wire_log_is_refused() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    let path = dir.join("wire.jsonl");
    let text = std::fs::read_to_string(&path).expect("text");
    for (from, to, why) in [
        ("two", "too", "digest"),
        ("\"attempt\":2", "\"attempt\":7", "attempt 2 is due"),
        ("\"status\":429", "\"status\":500", "status"),
        ("[0,16,20]", "[0,20,16]", "reads"),
        ("\"lane\":\"judge\"", "\"lane\":\"miner\"", "bytes of one that is not there"),
    ] {
        assert_eq!(from.len(), to.len());
        std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
        let error = Tape::of_session(&dir).expect_err("refused");
        let said = error.to_string();
        // The judge's first attempt goes to a lane that made no call.
        let said_so = said.contains(why) || (to.contains("miner") && said.contains("no miner call"));
        assert!(matches!(error, CassetteError::Unpackable { .. }) && said_so, "{why}: {said}");
    }
}

#[test]
fn a_secret_makes_no_file_and_is_not_told() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.cassette.zst");
    let tape = Tape::of_session(&recorded(&lab)).expect("read");
    let secrets = Secrets::new([("TOKEN".to_owned(), "Make   the check".to_owned())]);
    let how = Pack { parts: Parts::Everything, force: false, secrets: &secrets, allow: &["value".to_owned()] };
    let Err(CassetteError::Secrets(found)) = pack(&tape, &out, &how) else { panic!("packed") };
    assert_eq!((found[0].line, found[0].rule.as_str()), (1, "value"));
    assert_eq!(found[0].pointer, "/goal/text");
    assert!(!CassetteError::Secrets(found).to_string().contains("Make"));
    assert!(!out.exists());
    let left = lab.world.dir.list(lab.temp.path()).expect("a list").len();
    assert_eq!(left, 2, "nothing temporary is left");
}
