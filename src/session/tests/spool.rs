//! The spool: ids, ranges, the thread that writes, failures, the cap.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Longer than any of these writes takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The whole of what is found under an id.
fn whole(spool: &Spool, id: u64) -> Found {
    spool.read(id, 0, usize::MAX).expect("read")
}

fn found(text: &str) -> Found {
    Found::Body { bytes: body(text), size: text.len() as u64 }
}

/// As a resume finds it, whose log names the ids up to `named`.
fn reopened(dir: &Path, named: u64) -> Spool {
    let named = (1..=named).map(|id| (id, None)).collect();
    Spool::open(dir.to_owned(), &RealDir, &named).expect("opened")
}

/// The codes of what the operator is told.
fn codes(spool: &Spool) -> Vec<&'static str> {
    spool.news().into_iter().map(|(code, _)| code).collect()
}

#[test]
fn it_counts_on_and_reads_ranges() {
    let lab = Lab::new();
    let session = lab.create("s");
    let spool = session.spool();
    assert_eq!(spool.put(body("0123456789")), 1);
    assert_eq!(spool.put(body("")), 2);
    for on_disk in [false, true] {
        let range = |id, offset, limit| match spool.read(id, offset, limit).expect("read") {
            Found::Body { bytes, size } => Some((bytes.to_vec(), size)),
            _ => None,
        };
        assert_eq!(range(1, 0, 100), Some((b"0123456789".to_vec(), 10)));
        assert_eq!(range(1, 3, 4), Some((b"3456".to_vec(), 10)));
        assert_eq!(range(1, 8, 4), Some((b"89".to_vec(), 10)));
        assert_eq!(range(1, 10, 4), Some((Vec::new(), 10)));
        assert_eq!(range(1, u64::MAX, 4), Some((Vec::new(), 10)));
        assert_eq!(range(2, 0, 4), Some((Vec::new(), 0)));
        assert_eq!((whole(&spool, 3), whole(&spool, 0)), (Found::Unknown, Found::Unknown));
        if !on_disk {
            assert_eq!(spool.flush(PATIENCE), 0);
        }
    }
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&spool.path(1)), mode(spool.path(1).parent().expect("a folder"))), (0o600, 0o700));
    drop((spool, session));
    let opened = lab.open("s").expect("opened");
    assert_eq!(opened.session.spool().put(body("x")), 3);
}

#[test]
fn a_number_that_a_fact_names_is_never_given_again() {
    let lab = Lab::new();
    let session = lab.create("s");
    let Fact::Tool(mut done) = tool("call-1", ToolStatus::Ok) else { unreachable!() };
    done.spool = Some(7);
    session.append(Fact::Tool(done)).expect("appended");
    let result = CheckResult { spool: Some(9), ..check("tests") };
    session.append(Fact::Checks { iteration: 1, results: vec![result] }).expect("appended");
    drop(session);
    let opened = lab.open("s").expect("opened");
    let spool = opened.session.spool();
    for id in [7, 9] {
        let Found::Lost(why) = whole(&spool, id) else { panic!("{id} was never written") };
        assert_eq!(why, "the run that gave it ended before it was written");
    }
    assert_eq!(spool.put(body("x")), 10);
}

#[test]
fn what_a_kill_left_half_written_is_lost_and_not_served() {
    let temp = tempfile::tempdir().expect("a folder");
    let dir = temp.path().join("spool");
    let spool = Spool::new(dir.clone());
    spool.put(body("whole"));
    drop(spool);
    // As it is while the second one is being written.
    std::fs::write(dir.join("2.tmp"), "ha").expect("written");
    let spool = reopened(&dir, 2);
    assert_eq!(whole(&spool, 1), found("whole"));
    assert!(matches!(whole(&spool, 2), Found::Lost(_)) && spool.is_gone(2) && !spool.is_gone(1));
    assert!(!dir.join("2.tmp").exists());
    assert_eq!(spool.put(body("next")), 3);
}

#[test]
fn a_file_that_is_shorter_than_the_log_says_is_lost() {
    let lab = Lab::new();
    let session = lab.create("s");
    for (call, text) in [("call-1", "kept"), ("call-2", "cut short")] {
        let id = session.spool().put(body(text));
        let Fact::Tool(mut done) = tool(call, ToolStatus::Ok) else { unreachable!() };
        (done.spool, done.spool_bytes) = (Some(id), Some(text.len() as u64));
        session.append(Fact::Tool(done)).expect("appended");
    }
    let file = session.spool().path(2);
    drop(session);
    std::fs::write(file, "cut").expect("written");
    let opened = lab.open("s").expect("opened");
    let spool = opened.session.spool();
    assert_eq!(whole(&spool, 1), found("kept"));
    assert_eq!(whole(&spool, 2), Found::Lost("of its 9 bytes the disk has 3".to_owned()));
    assert!(spool.is_gone(2));
}

#[test]
fn an_abandoned_spool_writes_what_it_has() {
    let temp = tempfile::tempdir().expect("a folder");
    let dir = temp.path().join("spool");
    let spool = Spool::new(dir.clone());
    let bodies: Vec<String> = (1..=200).map(|n| format!("{n}").repeat(n)).collect();
    for text in &bodies {
        spool.put(body(text));
    }
    drop(spool);
    let spool = reopened(&dir, 0);
    for (n, text) in bodies.iter().enumerate() {
        assert_eq!(whole(&spool, n as u64 + 1), found(text));
    }
}

#[test]
fn what_cannot_be_written_stays_in_memory_up_to_thirty_two_megabytes_and_then_is_lost() {
    let temp = tempfile::tempdir().expect("a folder");
    // Where the folder should be stands a file.
    let dir = temp.path().join("spool");
    std::fs::write(&dir, "").expect("a file");
    let spool = Spool::new(dir.clone());
    let large = Bytes::from(vec![b'x'; 10_000_000]);
    for _ in 0..4 {
        spool.put(large.clone());
    }
    spool.put(body("small"));
    assert_eq!(spool.flush(PATIENCE), 0);
    for id in 1..=3 {
        assert_eq!(whole(&spool, id), Found::Body { bytes: large.clone(), size: 10_000_000 });
    }
    let Found::Lost(why) = whole(&spool, 4) else { panic!("forty megabytes are too many") };
    assert!(why.starts_with("it could not be written: ") && why.contains("os error"), "{why}");
    assert_eq!(whole(&spool, 5), found("small"));
    let news = spool.news();
    assert!(news.len() == 1 && news[0].0 == "spool_not_written" && news[0].1.contains("spool/1"), "{news:?}");
    // It is tried again with each further one.
    std::fs::remove_file(&dir).expect("removed");
    spool.put(body("later"));
    assert_eq!((spool.flush(PATIENCE), codes(&spool).len()), (0, 0));
    assert_eq!(std::fs::read(spool.path(6)).expect("a file"), b"later");
}

#[tokio::test(flavor = "current_thread")]
async fn who_names_a_file_waits_until_it_is_there_or_cannot_be() {
    let temp = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(temp.path().join("spool"));
    let large = Bytes::from(vec![b'x'; 20_000_000]);
    for _ in 0..3 {
        let id = spool.put(large.clone());
        assert!(spool.written(id).await);
        assert_eq!(std::fs::metadata(spool.path(id)).expect("a file").len(), 20_000_000);
    }
    assert!(spool.written(1).await, "long since");
    spool.limit(1_000);
    let id = spool.put(large);
    assert!(!spool.written(id).await, "larger than everything may be");
    // That the older ones go for the new cap may be told before it or after.
    assert!(codes(&spool).contains(&"spool_not_written"));
}

#[test]
fn the_oldest_go_when_there_is_no_room_and_say_so_after_a_resume_too() {
    let temp = tempfile::tempdir().expect("a folder");
    let dir = temp.path().join("spool");
    let spool = Spool::new(dir.clone());
    spool.limit(100);
    for n in 1..=5 {
        spool.put(body(&n.to_string().repeat(40)));
    }
    assert_eq!(spool.flush(PATIENCE), 0);
    for id in 1..=3 {
        assert_eq!(whole(&spool, id), Found::Dropped);
        assert!(spool.is_gone(id));
    }
    assert_eq!((whole(&spool, 4), whole(&spool, 5)), (found(&"4".repeat(40)), found(&"5".repeat(40))));
    assert_eq!(codes(&spool), ["spool_dropped"], "said once");
    drop(spool);

    let spool = reopened(&dir, 5);
    assert_eq!((whole(&spool, 3), whole(&spool, 4)), (Found::Dropped, found(&"4".repeat(40))));
    // What an earlier run left counts: at once, when the cap is lower now, and with each further one.
    spool.limit(79);
    assert_eq!(spool.put(body("x")), 6);
    assert_eq!(spool.flush(PATIENCE), 0);
    assert_eq!((whole(&spool, 4), whole(&spool, 5)), (Found::Dropped, found(&"5".repeat(40))));
    drop(spool);
    assert_eq!(reopened(&dir, 6).put(body("y")), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_files_never_take_more_than_the_cap_and_the_newest_stay(
        sizes in proptest::collection::vec(0usize..60, 1..30), max in 1u64..200
    ) {
        let temp = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(temp.path().join("spool"));
        spool.limit(max);
        for size in &sizes {
            spool.put(Bytes::from(vec![b'x'; *size]));
        }
        prop_assert_eq!(spool.flush(PATIENCE), 0);
        let on_disk = |id: &usize| std::fs::metadata(spool.path(*id as u64 + 1)).is_ok();
        // What fits at all is on the disk, from the newest back to where there is no more room.
        let fitting: Vec<usize> = (0..sizes.len()).filter(|id| sizes[*id] as u64 <= max).collect();
        let there: Vec<usize> = fitting.iter().copied().filter(on_disk).collect();
        prop_assert!(fitting.ends_with(&there));
        let total: u64 = there.iter().map(|id| sizes[*id] as u64).sum();
        prop_assert!(total <= max, "{total} > {max}");
    }
}
