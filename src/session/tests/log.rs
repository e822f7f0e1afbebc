//! The log on disk: layout, tip, torn tails, corruption.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

/// What the log of a session holds, without opening it.
fn facts(lab: &Lab, id: &str) -> Vec<Fact> {
    let (_, lines) = Session::read(&lab.dir(id)).expect("it reads");
    lines.into_iter().map(|line| line.fact).collect()
}

fn write_log(lab: &Lab, id: &str, content: &[u8]) {
    std::fs::create_dir_all(lab.dir(id)).expect("a folder");
    std::fs::write(lab.dir(id).join("session.jsonl"), content).expect("written");
}

const HEADER: &str = "{\"kind\":\"spettro session\",\"v\":1,\"id\":\"s\",\"workspace\":\"/w\",\"created\":\"2026-11-29T00:00:00.000Z\"}\n";

#[test]
fn a_new_session_is_private_and_begins_with_its_header() {
    let lab = Lab::new();
    let session = lab.create("s-1");
    let dir = lab.dir("s-1");
    assert_eq!(session.dir(), dir);
    assert_eq!(session.id(), "s-1");
    let names: Vec<_> = RealDir.list(&dir).expect("a list").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["lock", "session.jsonl"], "nothing else is made");
    for above in [dir.as_path(), dir.parent().expect("a parent"), &lab.temp.path().join("sessions")] {
        assert_eq!(mode(above), 0o700, "{}", above.display());
    }
    for fact in samples() {
        session.append(fact).expect("appended");
    }
    session.wire(&wire::attempt(1, b"{}", 0, &[b"x"])).expect("written");
    session.spool().put("out".into());
    assert_eq!(session.spool().flush(Duration::from_secs(30)), 0);
    session.save_derived().expect("saved");
    session.write_file("changes.patch", b"").expect("written");
    for file in [
        "session.jsonl",
        "wire.jsonl",
        "events.jsonl",
        "metadata.json",
        "tasks.json",
        "status.json",
        "lock",
        "changes.patch",
        "spool/1",
    ] {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
    let text = read_text(&dir.join("session.jsonl"));
    let header: Header = serde_json::from_str(text.lines().next().expect("a first line")).expect("a header");
    assert_eq!(header.kind, "spettro session");
    assert_eq!((header.v, header.id.as_str()), (LOG_VERSION, "s-1"));
    assert_eq!(header.workspace, lab.workspace.display().to_string());
    assert_eq!(header.created, "2026-11-18T11:06:40.123Z");
    assert_eq!(facts(&lab, "s-1"), samples());
}

#[test]
fn an_id_in_use_is_never_overwritten() {
    let lab = Lab::new();
    drop(lab.create("s-1"));
    let again = Session::create(&lab.world, &lab.store, &lab.workspace, "s-1", "run-1", Vec::new());
    assert!(
        matches!(&again, Err(SessionError::Io { error, .. }) if error.kind() == std::io::ErrorKind::AlreadyExists),
        "{:?}",
        again.err()
    );
}

#[test]
fn entries_hang_on_the_tip_and_only_they_move_it() {
    let lab = Lab::new();
    let session = lab.create("s");
    let facts = [
        user("a"),
        call(Lane::Agent, 1),
        assistant("b", &[]),
        Fact::Elapsed { active_ms: 1, waited_ms: 0 },
        user("c"),
        Fact::Tip { entry: "e3".into() },
        user("d"),
    ];
    for (seq, fact) in (1..).zip(facts) {
        assert_eq!(session.append(fact).expect("appended"), seq);
    }
    let unknown = session.append(Fact::Tip { entry: "e2".into() });
    assert!(matches!(unknown, Err(SessionError::Io { .. })), "e2 is no entry: {unknown:?}");
    assert_eq!(session.append(user("e")).expect("a refused tip ends nothing"), 8);
    drop(session);
    let opened = lab.open("s").expect("opened");
    let links: Vec<_> = opened.lines.iter().map(|line| (line.id.as_deref(), line.parent.as_deref())).collect();
    let none = (None, None);
    let expected = [
        (Some("e1"), None),
        none,
        (Some("e3"), Some("e1")),
        none,
        (Some("e5"), Some("e3")),
        none,
        (Some("e7"), Some("e3")),
        (Some("e8"), Some("e7")),
    ];
    assert_eq!(links, expected);
    opened.session.append(user("f")).expect("appended");
    assert_eq!(Session::read(&lab.dir("s")).expect("read").1[8].parent.as_deref(), Some("e8"));
}

#[test]
fn facts_of_one_write_stand_as_if_each_had_its_own() {
    let lab = Lab::new();
    let heard = [Rc::new(Heard::default()), Rc::new(Heard::default())];
    let [apart, together] = ["s-1", "s-2"];
    let session = lab.create_for(apart, vec![Rc::<Heard>::clone(&heard[0])]);
    for fact in samples() {
        session.append(fact).expect("appended");
    }
    let session = lab.create_for(together, vec![Rc::<Heard>::clone(&heard[1])]);
    let count = samples().len() as u64;
    assert_eq!(session.append_all(samples()).expect("appended"), count, "the last line's seq");
    assert_eq!(session.append_all([]).expect("nothing is something to append"), count);
    let lines = |id: &str| {
        let text = read_text(&lab.dir(id).join("session.jsonl"));
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(together), lines(apart));
    let told = heard.map(|heard| {
        let records = heard.0.take();
        records.into_iter().map(|record| (record.seq, record.fact, record.event)).collect::<Vec<_>>()
    });
    assert!(!told[0].is_empty());
    assert_eq!(told[0], told[1], "the same events in the same order");
}

#[test]
fn one_refused_fact_refuses_those_that_were_to_be_written_with_it() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.append(user("a")).expect("appended");
    let path = lab.dir("s").join("session.jsonl");
    let before = read_text(&path);
    let refused = session.append_all([user("b"), Fact::Tip { entry: "e3".into() }, user("c")]);
    assert!(matches!(refused, Err(SessionError::Io { .. })), "e3 comes after its tip: {refused:?}");
    assert_eq!(read_text(&path), before);
    let facts = [user("b"), user("c"), Fact::Tip { entry: "e2".into() }, user("d")];
    assert_eq!(session.append_all(facts).expect("e2 is one of them"), 5);
    let (_, lines) = Session::read(&lab.dir("s")).expect("read");
    let parents: Vec<_> = lines.iter().map(|line| line.parent.as_deref()).collect();
    assert_eq!(parents, [None, Some("e1"), Some("e2"), None, Some("e2")]);
    assert_eq!(session.last_entry(), 5);
}

#[test]
fn an_entry_of_an_unknown_kind_is_hung_on_and_a_label_is_not() {
    let lab = Lab::new();
    let text = format!(
        "{HEADER}{}\n{}\n",
        r#"{"seq":1,"t":"t","id":"e1","kind":"checkpoint","x":1}"#,
        r#"{"seq":2,"t":"t","id":"e2","parent":"e1","kind":"label","text":"here"}"#
    );
    write_log(&lab, "s", text.as_bytes());
    let opened = lab.open("s").expect("opened");
    opened.session.append(user("a")).expect("appended");
    let (_, lines) = Session::read(&lab.dir("s")).expect("read");
    assert_eq!(lines[2].parent.as_deref(), Some("e1"));
}

/// Cuts a whole log to `size` bytes and resumes it: what was whole is kept, the rest is set aside, the next append
/// is whole.
fn cut_and_go_on(whole: &[u8], size: usize) -> Result<(), TestCaseError> {
    let lab = Lab::new();
    write_log(&lab, "s", &whole[..size]);
    let kept = whole[..size].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let expected: Vec<Line> = whole[..kept]
        .split(|&byte| byte == b'\n')
        .skip(1)
        .filter(|text| !text.is_empty())
        .map(|text| serde_json::from_slice(text).expect("a line of the whole log"))
        .collect();
    let (_, read) = Session::read(&lab.dir("s")).expect("a torn log reads");
    prop_assert_eq!(&read, &expected);
    let opened = lab.open("s").expect("a torn log opens");
    prop_assert_eq!(&opened.lines, &expected);
    let aside = lab.dir("s").join("session.jsonl.torn");
    if kept < size {
        prop_assert_eq!(std::fs::read(&aside).expect("the torn bytes"), &whole[kept..size]);
        prop_assert_eq!(mode(&aside), 0o600);
        prop_assert_eq!(opened.notes.iter().filter(|note| note.contains("torn")).count(), 1);
    } else {
        prop_assert!(!aside.exists());
    }
    let seq = opened.session.append(user("after")).expect("appended");
    prop_assert_eq!(seq, expected.len() as u64 + 1);
    drop(opened);
    let text = read_text(&lab.dir("s").join("session.jsonl"));
    prop_assert!(text.ends_with('\n'));
    prop_assert!(text.as_bytes().starts_with(&whole[..kept]));
    let again = lab.open("s").expect("it opens again");
    prop_assert_eq!(again.lines.len(), expected.len() + 1);
    prop_assert!(!again.notes.iter().any(|note| note.contains("torn")), "repaired once: {:?}", again.notes);
    Ok(())
}

fn whole_log(facts: impl IntoIterator<Item = Fact>) -> Vec<u8> {
    let lab = Lab::new();
    let session = lab.create("s");
    for fact in facts {
        session.append(fact).expect("appended");
    }
    std::fs::read(lab.dir("s").join("session.jsonl")).expect("the log")
}

#[test]
fn a_log_cut_at_any_byte_of_its_last_two_lines_goes_on() {
    let whole = whole_log([user("first"), user("é 🦀 \"x\""), Fact::Iteration { iteration: 1 }]);
    let newlines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index).collect();
    let last_two = newlines[newlines.len() - 3] + 1;
    for size in last_two..=whole.len() {
        cut_and_go_on(&whole, size).unwrap_or_else(|error| panic!("cut at {size}: {error}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_log_of_any_facts_cut_anywhere_behind_its_header_goes_on(
        picks in proptest::collection::vec(0..samples().len(), 1..12),
        at in 0.0..=1.0f64,
    ) {
        let mut all = samples();
        let first = all.remove(0);
        let facts = picks.into_iter().map(|pick| samples()[pick].clone());
        let whole = whole_log(std::iter::once(first).chain(facts));
        let header = whole.iter().position(|&byte| byte == b'\n').expect("a header") + 1;
        cut_and_go_on(&whole, header + ((whole.len() - header) as f64 * at) as usize)?;
    }
}

#[test]
fn torn_bytes_set_aside_before_are_kept() {
    let lab = Lab::new();
    drop(lab.create("s"));
    let path = lab.dir("s").join("session.jsonl");
    for torn in ["{\"one", "{\"two", "{\"three"] {
        let mut text = std::fs::read(&path).expect("read");
        text.extend_from_slice(torn.as_bytes());
        std::fs::write(&path, text).expect("written");
        lab.open("s").expect("opened");
    }
    for (name, content) in [("torn", "{\"one"), ("torn.1", "{\"two"), ("torn.2", "{\"three")] {
        assert_eq!(read_text(&lab.dir("s").join(format!("session.jsonl.{name}"))), content);
    }
}

#[test]
fn what_is_corrupt_is_named_with_file_and_line_and_left_alone() {
    let line = |seq: u64| format!("{{\"seq\":{seq},\"t\":\"t\",\"kind\":\"iteration\",\"id\":\"e{seq}\"}}\n");
    let good =
        |seq: u64| format!("{{\"seq\":{seq},\"t\":\"t\",\"id\":\"e{seq}\",\"kind\":\"iteration\",\"iteration\":1}}\n");
    let cases = [
        (String::new(), 1, "empty"),
        (HEADER.trim_end().to_owned(), 1, "torn"),
        ("{}\n".to_owned(), 1, "missing field `kind`"),
        ("nonsense\n".to_owned(), 1, "column"),
        (HEADER.replace("spettro session", "something else"), 1, "`something else`"),
        (format!("{HEADER}nonsense\n"), 2, "column"),
        (format!("{HEADER}\n{}", good(1)), 2, "column"),
        (format!("{HEADER}{}{{\"seq\":2}}\n{}", good(1), good(3)), 3, "missing field"),
        (format!("{HEADER}{}{}", good(1), good(3)), 3, "seq 3 where 2 is due"),
        (format!("{HEADER}{}", good(2)), 2, "seq 2 where 1 is due"),
        (format!("{HEADER}{}{}", good(1), good(1)), 3, "seq 1 where 2 is due"),
        (format!("{HEADER}{}", line(1)), 2, "column"),
        (format!("{HEADER}{}", good(1).replace("e1", "e4")), 2, "entry `e4`"),
        (format!("{HEADER}{}", good(1).replace("\"id\":\"e1\",", "")), 2, "without an id"),
        (
            format!("{HEADER}{}{}", good(1), good(2).replace("\"id\":\"e2\"", "\"id\":\"e2\",\"parent\":\"e9\"")),
            3,
            "`e9`",
        ),
        (format!("{HEADER}{{\"seq\":1,\"t\":\"t\",\"kind\":\"tip\",\"entry\":\"e7\"}}\n"), 2, "`e7`"),
    ];
    for (text, at, why) in cases {
        let lab = Lab::new();
        write_log(&lab, "s", text.as_bytes());
        let path = lab.dir("s").join("session.jsonl");
        for error in [lab.open("s").err(), Session::read(&lab.dir("s")).err()] {
            match error {
                Some(SessionError::Corrupt { file, line, reason }) => {
                    assert_eq!((&file, line), (&path, at), "{text:?}: {reason}");
                    assert!(reason.contains(why), "{text:?}: {reason}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
        assert_eq!(read_text(&path), text, "a corrupt log is left as it is");
        assert!(!lab.dir("s").join("events.jsonl").exists());
    }
}

#[test]
fn a_newer_version_is_refused_before_anything_is_repaired() {
    let lab = Lab::new();
    let text = format!("{}{{\"torn", HEADER.replace("\"v\":1", "\"v\":2,\"more\":[]"));
    write_log(&lab, "s", text.as_bytes());
    let error = lab.open("s").err().expect("refused");
    assert!(matches!(error, SessionError::Newer { version: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("version 2; this build reads 1"), "{error}");
    assert_eq!(read_text(&lab.dir("s").join("session.jsonl")), text);
}

#[test]
fn a_folder_without_a_log_is_no_session() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.dir("s")).expect("a folder");
    for id in ["s", "other"] {
        let error = lab.open(id).err().expect("refused");
        assert!(matches!(&error, SessionError::Unknown { id: named } if named == id), "{error:?}");
    }
}

#[test]
fn foreign_writes_end_the_session() {
    let more = |path: &Path| {
        let mut text = std::fs::read(path).expect("read");
        text.extend_from_slice(b"{\"mine\":1}\n");
        std::fs::write(path, text).expect("written");
    };
    let less = |path: &Path| std::fs::write(path, HEADER).expect("written");
    let replaced = |path: &Path| {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).expect("copied");
        std::fs::rename(copy, path).expect("renamed");
    };
    let removed = |path: &Path| std::fs::remove_file(path).expect("removed");
    for (what, change) in
        [("more", &more as &dyn Fn(&Path)), ("less", &less), ("replaced", &replaced), ("gone", &removed)]
    {
        let lab = Lab::new();
        let session = lab.create("s");
        session.append(user("a")).expect("appended");
        let path = lab.dir("s").join("session.jsonl");
        change(&path);
        let after = std::fs::read(&path).ok();
        for _ in 0..2 {
            let error = session.append(user("b")).err();
            assert!(matches!(&error, Some(SessionError::Foreign { file }) if *file == path), "{what}: {error:?}");
        }
        assert_eq!(std::fs::read(&path).ok(), after, "{what}: nothing was written");
    }
}

#[test]
fn the_disk_has_what_was_written_when_a_sync_is_awaited() {
    let lab = Lab::new();
    let session = lab.create("s");
    block_on(session.sync_now()).expect("the first line");
    session.append(user("a")).expect("appended");
    session.wire(&wire::attempt(1, b"{}", 0, &[b"x"])).expect("written");
    let started = session.sync_start();
    session.append(user("b")).expect("appends go on beside it");
    block_on(started.wait()).expect("synced");
    block_on(async {
        let (first, second) = (session.sync_start(), session.sync_start());
        second.wait().await.expect("in any order");
        first.wait().await.expect("in any order");
    });
}

#[test]
fn an_unused_session_leaves_nothing_and_a_used_one_is_kept() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.append(frozen()).expect("appended");
    session.append(run("run-1")).expect("appended");
    session.discard().expect("discarded");
    assert!(!lab.dir("s").exists() && !lab.dir("s").parent().expect("a parent").exists());
    for used in [call(Lane::Agent, 1), Fact::Checks { iteration: 0, results: Vec::new() }] {
        let session = lab.create("s");
        session.append(used).expect("appended");
        assert!(session.discard().is_err());
        assert!(lab.dir("s").join("session.jsonl").exists());
        std::fs::remove_dir_all(lab.dir("s")).expect("removed");
    }
}

#[test]
fn whole_files_keep_to_the_folder_and_off_the_logs() {
    let lab = Lab::new();
    let session = lab.create("s");
    let path = session.write_file("changes.patch", b"diff").expect("written");
    assert_eq!(std::fs::read(&path).expect("read"), b"diff");
    session.write_file("changes.patch", b"other").expect("replaced");
    assert_eq!(std::fs::read(&path).expect("read"), b"other");
    for bad in ["../x", "a/b", "", ".hidden", "session.jsonl", "wire.jsonl", "lock", "events.jsonl", "metadata.json"] {
        assert!(session.write_file(bad, b"x").is_err(), "{bad:?}");
    }
    let Fact::End(end) = end("run-1", Outcome::Met) else { unreachable!() };
    session.write_result(&end.result, "# met\n").expect("written");
    let back: RunResult = serde_json::from_str(&read_text(&session.dir().join("result.json"))).expect("a result");
    assert_eq!(back, *end.result);
    assert_eq!(read_text(&session.dir().join("summary.md")), "# met\n");
}

#[test]
fn a_store_that_cannot_be_made_is_an_error_with_its_path() {
    let lab = Lab::new();
    let file = lab.temp.path().join("a-file");
    std::fs::write(&file, "").expect("a file");
    let made = Session::create(&lab.world, &Store::new(file.clone()), &lab.workspace, "s", "r", Vec::new());
    match made.err() {
        Some(error @ SessionError::Io { .. }) => {
            assert!(error.to_string().starts_with(&format!("make {}", file.display())), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(Session::read(&lab.dir("none")), Err(SessionError::Unknown { id }) if id == "none"));
}
