//! Every released version of the format stays readable.

use std::path::{Path, PathBuf};

use spettro::cassette::Tape;
use spettro::event::{Lane, Outcome};

use crate::sandbox::Sandbox;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cassettes/1.0").join(name)
}

#[test]
fn format_1_0_is_read() {
    let sandbox = Sandbox::new();
    for name in ["quickstart.cassette.zst", "quickstart.jsonl", "replies.jsonl"] {
        let path = fixture(name);
        let tape = Tape::of_file(&path).expect(name);
        assert_eq!((tape.head().format.as_str(), tape.outcome()), ("1.0", Some(Outcome::Met)), "{name}");
        assert_eq!(tape.exchanges(Lane::Agent).len(), 5, "{name}");
        assert_eq!(tape.is_session(), name != "replies.jsonl");
        sandbox.run(["cassette", "verify", path.to_str().expect("a path")]).expect_code(0);
    }
    let (zst, plain) = (fixture("quickstart.cassette.zst"), fixture("quickstart.jsonl"));
    sandbox.run(["cassette", "diff", zst.to_str().expect("a path"), plain.to_str().expect("a path")]).expect_code(0);
}
