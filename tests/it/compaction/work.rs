//! What the agent of a long run does, and how its summarizer fails: the same in the tests and where it is measured.

use super::scripted::Reply;

/// A file that lies ready for the agent: so many bytes in lines.
pub fn file(bytes: usize) -> String {
    let mut text: String = (0..=bytes / 25).map(|n| format!("line {n} of a file that lies ready\n")).collect();
    text.truncate(bytes);
    text
}

/// Files with so many bytes lie ready for the agent.
pub const FILES: [usize; 6] = [10, 100, 1_000, 10_000, 60_000, 5_000_000];

/// A number that looks like chance and is the same in every run.
fn chance(seed: u64, n: u64) -> u64 {
    let mut x = (seed << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 31;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 29
}

/// What the agent does in a step: now and then megabytes, else small things; always another call.
pub fn step(n: u64) -> Reply {
    let mut reply = if n.is_multiple_of(7) { Reply::thinking(&format!("thought {n}")) } else { Reply::empty() };
    if chance(2, n).is_multiple_of(3) {
        reply = reply.and_text(&format!("Now comes step {n}, which looks at one more output."));
    }
    let file = match chance(3, n) % 100 {
        0..30 => 10,
        30..55 => 100,
        55..80 => 1_000,
        80..95 => 10_000,
        _ => 60_000,
    };
    if n % 250 == 249 {
        reply.and_call("bash", serde_json::json!({"command": format!("echo {n}; cat f-5000000")}))
    } else if n.is_multiple_of(5) {
        let bytes = 10 + chance(4, n) % 3_000;
        let noise = if n.is_multiple_of(25) { "printf 'a\\000b\\377c\\n'; " } else { "" };
        reply.and_call("bash", serde_json::json!({"command": format!("echo {n}; {noise}head -c {bytes} f-10000")}))
    } else {
        reply.and_call("file-read", serde_json::json!({"path": format!("f-{file}"), "limit": 1_900 - n % 100}))
    }
}

/// The answers of a summarizer that fails one time in four, each time otherwise.
pub fn failing(n: u64) -> Option<Reply> {
    chance(5, n).is_multiple_of(4).then(|| match n % 4 {
        0 => Reply::error(400),
        1 => Reply::refusal("I would rather not"),
        2 => Reply::summary("half of it").stop("max_tokens"),
        _ => Reply::text("no sections"),
    })
}
