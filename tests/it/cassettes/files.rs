//! Files that are no whole cassette: each is refused with 31 and a reason, and nothing else happens.

use spettro::event::Outcome;

use super::{packed, recorded};
use crate::goal::support::{Case, content};

#[test]
fn what_is_not_whole_is_refused_by_every_reader() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let plain = std::fs::read(packed(&case, "whole.jsonl")).expect("read");
    let zst = std::fs::read(packed(&case, "whole.cassette.zst")).expect("read");
    let text = String::from_utf8(plain.clone()).expect("text");
    let head = text.lines().next().expect("a head");
    let sent = case.provider.requests().len();
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 4;
        bytes
    };
    let newer = head.replace("\"format\":\"1.0\"", "\"format\":\"1.9\"");
    let files: [(&str, Vec<u8>, &str); 9] = [
        ("cut", plain[..plain.len() / 2].to_vec(), "incomplete"),
        ("cut.zst", zst[..zst.len() / 2].to_vec(), "incomplete"),
        ("flipped", flipped(&plain, plain.len() - 90), ""),
        ("flipped.zst", flipped(&zst, zst.len() / 2), "seal"),
        ("followed", [&plain[..], b"{}\n"].concat(), "follows the end"),
        ("minor", format!("{newer}\n{{\"type\":\"video\"}}\n").into_bytes(), "newer spettro (format 1.9"),
        ("major", b"{\"type\":\"head\",\"format\":\"2.0\"}\n".to_vec(), "newer spettro (format 2.0"),
        ("foreign", b"\x7fELF and so on".to_vec(), "is no cassette"),
        ("empty", Vec::new(), "is no cassette"),
    ];
    let sessions = case.sandbox.session_dirs().len();
    for (name, bytes, reason) in files {
        let path = case.sandbox.write(case.sandbox.root().join(name), bytes);
        let path = path.to_str().expect("a path");
        for verb in ["verify", "show", "lint"] {
            let refused = case.sandbox.run(["cassette", verb, path]).expect_code(31);
            assert!(refused.stderr.contains(reason) && refused.stdout.is_empty(), "{name}: {}", refused.stderr);
        }
        let out = case.sandbox.root().join("out.jsonl");
        case.sandbox.run(["cassette", "strip", path, "-o", out.to_str().expect("a path")]).expect_code(31);
        assert!(!out.exists());
        case.sandbox.run(["cassette", "diff", path, "latest"]).expect_code(31);
        case.sandbox.goal_without_model(&format!("goal: x\nmodel: {{cassette: {name}}}"));
        case.run().expect(Outcome::Unusable);
    }
    assert_eq!(case.sandbox.session_dirs().len(), sessions, "no run began");
    assert_eq!(case.provider.requests().len(), sent);
    case.provider.finish();
}

#[test]
fn a_file_that_breaks_off_is_taken_as_far_as_it_goes_when_asked() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let plain = std::fs::read(packed(&case, "whole.jsonl")).expect("read");
    let path = case.sandbox.write(case.sandbox.root().join("cut.jsonl"), &plain[..plain.len() - 30]);
    let path = path.to_str().expect("a path");
    let refused = case.sandbox.run(["cassette", "show", path]).expect_code(31);
    assert!(refused.stderr.contains("--allow-incomplete"), "{}", refused.stderr);
    let said = case.sandbox.run(["cassette", "show", path, "--allow-incomplete"]).expect_code(0).stdout;
    assert!(said.contains("change the notes"), "{said}");
    let said = case.sandbox.run(["cassette", "verify", path, "--allow-incomplete"]).expect_code(32).stdout;
    assert!(said.contains("as far as it goes"), "{said}");
    case.provider.finish();
}

#[test]
fn a_compressed_file_that_breaks_off_is_unpacked_as_far_as_it_goes() {
    let case = recorded();
    case.run().expect(Outcome::Met);
    let whole = std::fs::read(packed(&case, "whole.cassette.zst")).expect("read");
    let shown = |bytes: &[u8], code: i32| {
        let path = case.sandbox.write(case.sandbox.root().join("cut.cassette.zst"), bytes);
        let path = path.to_str().expect("a path");
        case.sandbox.run(["cassette", "show", path, "--allow-incomplete"]).expect_code(code)
    };
    assert!(whole.len() < 40_000, "a small one: {} bytes", whole.len());
    let half = shown(&whole[..whole.len() / 2], 0).stdout;
    assert!(half.contains("change the notes"), "{half}");
    // Without the seal, and without its last byte, all lines are there.
    for bytes in [whole.len() - 1, whole.len() - 40] {
        assert!(shown(&whole[..bytes], 0).stdout.contains("outcome: met"));
    }
    let start = shown(&whole[..60], 31).stderr;
    assert!(start.contains("too little") && !start.contains("--allow-incomplete"), "{start}");
    for more in ["\n", "and a few bytes more"] {
        let followed = shown(&[&whole[..], more.as_bytes()].concat(), 31).stderr;
        assert!(followed.contains("something follows its end"), "{followed}");
    }
    case.provider.finish();
}

#[test]
fn a_session_that_lost_its_wire_log_is_not_packed() {
    let case = Case::new(content(), "goal: x");
    case.run().expect(Outcome::Met);
    let wire = case.sandbox.session_dir().join("wire.jsonl");
    let bytes = std::fs::read(&wire).expect("read");
    case.sandbox.write(&wire, &bytes[..bytes.len() - 5]);
    let refused = case.sandbox.run(["cassette", "pack", "latest"]).expect_code(31);
    assert!(refused.stderr.contains("wire.jsonl"), "{}", refused.stderr);
    case.sandbox.run(["cassette", "pack", "nothing-like-it"]).expect_code(2);
    case.sandbox.run(["cassette", "show", "no/such.jsonl"]).expect_code(31);
    case.provider.finish();
}
