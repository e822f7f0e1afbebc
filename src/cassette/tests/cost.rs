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
