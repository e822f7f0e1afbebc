//! Tests of the room.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::*;
use crate::event::{Lane, Outcome};
use crate::session::tests::{Lab, block_on, call, end, failed_attempt, frozen, run, settled};
use crate::session::{Fact, Session, SessionError, WireAttempt};
use crate::world::{Body, HttpRequest, Tag, Transport, TransportError};

const STREAM: &[u8] = b"data: {\"text\":\"\xc3\xa9\"}\r\n\r\ndata: [DONE]\n\n";
const NOT_UTF8: &[u8] = b"data: \xff\xfe cut \xf0\x9f\n";

fn digest(text: &str) -> String {
    file::hex(&Sha256::digest(text.as_bytes()))
}

/// One call of a lane with its request's rest and its reply.
fn exchange(session: &Session, lane: Lane, n: u64, rest: &str, body: &[u8], reads: &[u64]) {
    let sha256 = digest(rest);
    session.append(call(lane, n)).expect("appended");
    let headers =
        [("content-type".to_owned(), "text/event-stream".to_owned()), ("request-id".to_owned(), "volatile".to_owned())];
    let attempt = WireAttempt {
        lane,
        n,
        attempt: 2,
        method: "POST",
        url: "http://127.0.0.1:9/v1",
        request_headers: &[],
        front: b"{",
        keep: 0,
        add: rest.as_bytes(),
        sha256: &sha256,
        status: Some(200),
        response_headers: &headers,
        body,
        reads,
        end: "eof",
        ms: 1,
        redacted: false,
    };
    let place = session.wire(&attempt).expect("written");
    let attempts = vec![failed_attempt(), crate::session::tests::attempt(place)];
    session.append(settled(lane, n, attempts)).expect("appended");
}

/// A session with two whole agent replies, one failed agent call between them, and one judge reply.
fn recorded(lab: &Lab) -> PathBuf {
    let session = lab.create("s");
    session.append(frozen()).expect("appended");
    session.append(run("run-1")).expect("appended");
    exchange(&session, Lane::Agent, 1, "rest 1", STREAM, &[0, 16, 20]);
    session.append(call(Lane::Agent, 2)).expect("appended");
    let Fact::Settled(mut failed) = settled(Lane::Agent, 2, vec![failed_attempt()]) else { unreachable!() };
    failed.error = Some("rate limited".into());
    session.append(Fact::Settled(failed)).expect("appended");
    exchange(&session, Lane::Judge, 1, "judged", b"", &[]);
    exchange(&session, Lane::Agent, 3, "rest 2", NOT_UTF8, &[0]);
    session.append(end("run-1", Outcome::Met)).expect("appended");
    lab.dir("s")
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
        assert_eq!(response.headers, [("content-type".to_owned(), "text/event-stream".to_owned())]);
        Ok((response.status, chunks))
    })
}

#[test]
fn a_packed_session_answers_as_its_provider_did() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    let out = lab.temp.path().join("x.cassette.jsonl");
    let packed = pack(&dir, &out, false).expect("packed");
    assert_eq!(packed.replies, [("agent".to_owned(), 2), ("judge".to_owned(), 1)].into());
    assert_eq!(packed.bytes, std::fs::metadata(&out).expect("made").len());
    assert_eq!(std::fs::metadata(&out).expect("made").permissions().mode() & 0o777, 0o600);
    let player = Player::open(&out).expect("opened");
    assert!(player.recorded());
    assert_eq!((player.count(Lane::Agent), player.count(Lane::Judge), player.count(Lane::Miner)), (2, 1, 0));
    let split = vec![STREAM[..16].to_vec(), STREAM[16..20].to_vec(), STREAM[20..].to_vec()];
    assert_eq!(ask(&player, Lane::Agent, 1, "rest 1").expect("served"), (200, split.clone()));
    assert_eq!(ask(&player, Lane::Judge, 1, "judged").expect("served"), (200, Vec::new()));
    assert_eq!(ask(&player, Lane::Agent, 2, "rest 2").expect("served"), (200, vec![NOT_UTF8.to_vec()]));
    // A retry, and a run that was resumed, get the same again.
    assert_eq!(ask(&player, Lane::Agent, 1, "rest 1").expect("served"), (200, split));
    assert!(player.mismatches().is_empty());
}

#[test]
fn another_request_is_reported_and_served_all_the_same() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    pack(&recorded(&lab), &out, false).expect("packed");
    let player = Player::open(&out).expect("opened");
    ask(&player, Lane::Agent, 2, "changed").expect("served");
    let expected = Mismatch { lane: Lane::Agent, n: 2, recorded: digest("rest 2"), sent: digest("changed") };
    assert_eq!(player.mismatches(), [expected]);
}

#[test]
fn a_call_beyond_the_last_reply_is_a_miss() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    pack(&recorded(&lab), &out, false).expect("packed");
    let player = Player::open(&out).expect("opened");
    for (lane, n) in [(Lane::Agent, 3), (Lane::Agent, 0), (Lane::Judge, 2), (Lane::Summarizer, 1)] {
        let error = ask(&player, lane, n, "x").expect_err("a miss");
        assert!(matches!(&error, TransportError::Miss(text) if text.contains(lane.name())), "{error}");
    }
}

#[test]
fn the_head_says_what_it_is_and_nothing_secret() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    pack(&recorded(&lab), &out, false).expect("packed");
    let player = Player::open(&out).expect("opened");
    let head = player.head();
    assert_eq!(head.format, "1.0");
    assert_eq!(head.parts, ["replies"]);
    assert_eq!(head.goal.name, "demo");
    assert_eq!(head.lanes["agent"]["wire"], "openai-chat");
    assert_eq!(head.lanes["judge"]["window_tokens"], 1000);
    assert_eq!(head.provenance, "recorded from s against a local server");
    let text = std::fs::read_to_string(&out).expect("text");
    for hidden in ["hidden", "127.0.0.1", "request-id", "volatile"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    assert!(text.lines().last().expect("an end").contains("\"outcome\":\"met\""));
}

#[test]
fn an_existing_name_is_kept_without_force() {
    let lab = Lab::new();
    let dir = recorded(&lab);
    let out = lab.temp.path().join("x.jsonl");
    std::fs::write(&out, "mine").expect("written");
    assert!(matches!(pack(&dir, &out, false), Err(CassetteError::Exists(path)) if path == out));
    assert_eq!(std::fs::read_to_string(&out).expect("read"), "mine");
    pack(&dir, &out, true).expect("replaced");
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
    assert!(matches!(pack(&lab.dir("empty"), &out, false), Err(CassetteError::Nothing(id)) if id == "empty"));
    let dir = recorded(&lab);
    std::fs::remove_file(dir.join("wire.jsonl")).expect("removed");
    let error = pack(&dir, &out, false).expect_err("refused");
    assert!(matches!(&error, CassetteError::Unpackable { n: 1, .. }), "{error}");
    std::fs::write(dir.join("session.jsonl"), "").expect("emptied");
    assert!(matches!(pack(&dir, &out, false), Err(CassetteError::Session(SessionError::Corrupt { .. }))));
    assert!(!out.exists());
}

#[test]
fn a_changed_or_cut_cassette_is_refused() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    pack(&recorded(&lab), &out, false).expect("packed");
    let whole = std::fs::read_to_string(&out).expect("text");
    let open = |content: &[u8]| {
        std::fs::write(&out, content).expect("written");
        Player::open(&out).err()
    };
    let lines: Vec<&str> = whole.lines().collect();
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let corrupt = |content: &str, why: &str| {
        let error = open(content.as_bytes());
        assert!(
            matches!(&error, Some(CassetteError::Corrupt { reason, .. }) if reason.contains(why)),
            "{why}: {error:?}"
        );
    };
    corrupt(&whole.replace("[DONE]", "[GONE]"), "digest");
    corrupt(&whole.replace("Make", "Fake"), "digest");
    corrupt(&join(&[lines[0], lines[2], lines[3], lines[4]]), "out of order");
    corrupt(&join(&[lines[0], lines[1], lines[2], lines[4]]), "digest");
    corrupt(&whole.replace("\"agent\":2", "\"agent\":3"), "counts");
    corrupt(&format!("{whole}{}\n", lines[1]), "follows the end");
    corrupt(&join(&[lines[0], lines[0]]), "head");
    corrupt(&join(&[lines[0], "{\"type\":\"facts\"}"]), "unknown variant");
    corrupt(&whole.replace("[0,16,20]", "[0,16,99999]"), "reads");
    corrupt(&whole.replace("[0,16,20]", "[0,20,16]"), "reads");
    assert!(matches!(open(join(&lines[..4]).as_bytes()), Some(CassetteError::Incomplete(_))));
    assert!(matches!(open(&whole.as_bytes()[..whole.len() - 9]), Some(CassetteError::Incomplete(_))));
    assert!(matches!(open(b""), Some(CassetteError::NotOne { .. })));
    assert!(matches!(open(b"hello\n"), Some(CassetteError::NotOne { .. })));
    assert!(matches!(open(join(&lines[1..]).as_bytes()), Some(CassetteError::NotOne { .. })));
    assert!(matches!(open(&[0x28, 0xb5, 0x2f, 0xfd, 0]), Some(CassetteError::Compressed(_))));
    assert!(open(whole.as_bytes()).is_none(), "the whole one still opens");
    // Every single byte counts.
    for index in (0..whole.len()).step_by(7) {
        let mut flipped = whole.clone().into_bytes();
        flipped[index] ^= 1;
        assert!(open(&flipped).is_some(), "byte {index}");
    }
}

#[test]
fn a_newer_format_is_named() {
    let lab = Lab::new();
    let out = lab.temp.path().join("x.jsonl");
    pack(&recorded(&lab), &out, false).expect("packed");
    let whole = std::fs::read_to_string(&out).expect("text");
    let lines: Vec<&str> = whole.lines().collect();
    let open = |lines: &[&str]| {
        std::fs::write(&out, lines.join("\n") + "\n").expect("written");
        Player::open(&out).err()
    };
    let major = open(&["{\"type\":\"head\",\"format\":\"2.0\"}"]);
    assert!(matches!(&major, Some(CassetteError::Newer { format, .. }) if format == "2.0"), "{major:?}");
    let head = lines[0].replace("\"format\":\"1.0\"", "\"format\":\"1.3\"");
    let minor = open(&[&head, "{\"type\":\"spool\"}"]);
    assert!(matches!(&minor, Some(CassetteError::Newer { format, .. }) if format == "1.3"), "{minor:?}");
    // A newer minor that uses nothing new is read.
    let digest = file::hex(&Sha256::digest(format!("{head}\n{}\n", lines[1])));
    let end = format!("{{\"type\":\"end\",\"counts\":{{\"agent\":1}},\"outcome\":null,\"sha256\":\"{digest}\"}}");
    let read = open(&[&head, lines[1], &end]);
    assert!(read.is_none(), "{read:?}");
}
