//! What a long session costs.

use base64::Engine as _;

use super::*;

/// Text that does not get smaller but for the six bits of a character.
fn noise(n: usize, bytes: usize) -> String {
    let blocks = (0..bytes / 32 + 1).flat_map(|block| Sha256::digest(format!("{n} {block}")));
    let mut text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(blocks.collect::<Vec<u8>>());
    text.truncate(bytes);
    text
}

#[test]
fn what_two_requests_share_is_packed_once() {
    const STEPS: usize = 200;
    const ADDED_BYTES: usize = 3_000;
    let lab = Lab::new();
    let session = lab.create("long");
    session.append(frozen()).expect("appended");
    let (mut rest, mut kept) = ("\"messages\":[".to_owned(), 0);
    for step in 0..STEPS {
        if step > 0 {
            rest.push(',');
        }
        rest.push_str(&json!({"content": noise(step, ADDED_BYTES)}).to_string());
        // A whole body every 50 calls.
        let keep = if step % 50 == 0 { 0 } else { kept };
        let whole = format!("{rest}]}}");
        let (lane, n) = (Lane::Agent, step as u64 + 1);
        Call { lane, n, rest: &whole, keep, body: STREAM, reads: &[0] }.write(&session);
        kept = rest.len() as u64;
    }
    let out = lab.temp.path().join("long.cassette.zst");
    let made = pack_as(&lab.dir("long"), &out, Parts::Everything).expect("packed");
    let tape = Tape::of_file(&out).expect("read");
    let last = tape.exchanges(Lane::Agent)[STEPS - 1].attempts[1].request.clone().expect("recorded").rest;
    assert!(last.len() > 600_000);
    assert_eq!(digest(std::str::from_utf8(&last.to_vec()).expect("text")), digest(&format!("{rest}]}}")));
    // Six of eight bits of what was said once, and little else.
    assert!(made.bytes < 600_000, "{} bytes", made.bytes);
}

/// Which wire lines of a plain cassette hold their body whole.
fn whole_bodies(file: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(file).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let wires = lines.filter(|line| line["type"] == "wire").enumerate();
    wires.filter(|(_, line)| line["request"]["keep"] == 0).map(|(at, _)| at).collect()
}

#[test]
fn a_body_stands_whole_where_it_begins_anew_and_where_too_many_hang_together() {
    let lab = Lab::new();
    let session = lab.create("long");
    session.append(frozen()).expect("appended");
    let (mut rest, mut kept) = ("\"messages\":[".to_owned(), 0);
    let mut bodies = Vec::new();
    for step in 0..600 {
        if step == 120 {
            // A compaction: another history.
            (rest, kept) = ("\"messages\":[{}".to_owned(), 0);
        }
        rest.push_str(&format!("{{\"content\":{step}}},"));
        let whole = format!("{rest}]}}");
        let (lane, n) = (Lane::Agent, step as u64 + 1);
        Call { lane, n, rest: &whole, keep: if step % 50 == 0 { 0 } else { kept }, body: STREAM, reads: &[0] }
            .write(&session);
        kept = rest.len() as u64;
        bodies.push(whole);
    }
    let out = lab.temp.path().join("long.jsonl");
    pack_as(&lab.dir("long"), &out, Parts::Everything).expect("packed");
    // Each call has two attempts: the compaction's first is the 240th, and 513 lines hang together.
    assert_eq!(whole_bodies(&out), [0, 240, 753]);
    let tape = Tape::of_file(&out).expect("read");
    let read = tape.exchanges(Lane::Agent).iter().map(|call| call.attempts[1].request.clone().expect("recorded").rest);
    for (read, body) in read.zip(&bodies) {
        assert_eq!(std::str::from_utf8(&read.to_vec()), Ok(body.as_str()));
    }
    // Packed from a file it is the same file.
    let again = lab.temp.path().join("again.jsonl");
    let how = Pack { parts: Parts::Everything, force: false, secrets: &Secrets::default(), allow: &[] };
    pack(&tape, &again, &how).expect("packed");
    assert_eq!(std::fs::read(&again).expect("read"), std::fs::read(&out).expect("read"));
}
