//! A disk that is full, met as a file that may not grow: in a child of its own, because that limit is the process's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

const INSIDE: &str = "SPETTRO_TEST_FULL_DISK";
const LIMIT_BYTES: u64 = 64 * 1024;

#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs itself again in a child whose files may not grow")]
fn a_full_disk_mid_append_leaves_whole_lines_and_ends_the_session() {
    if std::env::var_os(INSIDE).is_some() {
        return full();
    }
    let status = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "session::tests::disk::a_full_disk_mid_append_leaves_whole_lines_and_ends_the_session"])
        .args(["--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .output()
        .expect("the child runs");
    let output = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
    assert!(status.status.success() && output.contains("1 passed"), "{output}");
}

fn full() {
    // A handler in place of the signal's default, which would end the process: the write then gives EFBIG.
    signal_hook::flag::register(25, Arc::new(AtomicBool::new(false))).expect("SIGXFSZ is handled");
    let limit = rustix::process::Rlimit { current: Some(LIMIT_BYTES), maximum: Some(LIMIT_BYTES) };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("limited");
    let lab = Lab::new();
    let session = lab.create("s");
    let text = "x".repeat(1_000);
    let mut appended = 0;
    let error = loop {
        match session.append(user(&text)) {
            Ok(seq) => appended = seq,
            Err(error) => break error,
        }
        assert!(appended < 100, "the limit is never met");
    };
    let kind_of = |error: &SessionError| match error {
        SessionError::Io { error, .. } => error.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind_of(&error), std::io::ErrorKind::FileTooLarge);
    let path = lab.dir("s").join("session.jsonl");
    let content = read_text(&path);
    assert!(content.ends_with('\n'), "the torn line was cut off");
    assert!((content.len() as u64) < LIMIT_BYTES && content.len() as u64 > LIMIT_BYTES - 1_200, "{}", content.len());
    let small = session.append(Fact::Iteration { iteration: 1 }).expect_err("nothing more, even if it would fit");
    assert_eq!(kind_of(&small), std::io::ErrorKind::FileTooLarge);
    assert_eq!(read_text(&path), content, "disk and memory agree");

    // Of facts written together all stand, or none: here the first of them would have fitted.
    let session_of_two = lab.create("two");
    let mut both = 0;
    while let Ok(seq) = session_of_two.append_all([user("short"), user(&"x".repeat(10_000))]) {
        both = seq;
        assert!(both < 100, "the limit is never met");
    }
    let (_, lines) = Session::read(&lab.dir("two")).expect("whole lines");
    assert_eq!(lines.len() as u64, both);
    assert!(both >= 2 && both.is_multiple_of(2), "{both}");

    // The wire log fails by itself; what it gave an offset for is whole.
    let body = vec![b'y'; 5_000];
    let mut named = Vec::new();
    let error = loop {
        match session.wire(&wire::attempt(1, b"{}", 0, &[&body])) {
            Ok(place) => named.push(place),
            Err(error) => break error,
        }
    };
    assert_eq!(kind_of(&error), std::io::ErrorKind::FileTooLarge);
    assert!(session.wire(&wire::attempt(1, b"{}", 0, &[b""])).is_err());
    for (offset, bytes) in named {
        read_wire(&lab.dir("s"), offset, bytes).expect("whole");
    }
    assert!(read_text(&lab.dir("s").join("wire.jsonl")).ends_with('\n'));

    drop(session);
    let opened = lab.open("s").expect("it opens");
    assert_eq!(opened.lines.len() as u64, appended);
    assert!(!opened.notes.iter().any(|note| note.contains("torn")), "{:?}", opened.notes);
}
