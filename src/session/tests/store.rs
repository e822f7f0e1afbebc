//! Finding and listing sessions.

use super::*;

fn finished(lab: &Lab, id: &str, outcome: Outcome) {
    let session = lab.create(id);
    for fact in [frozen(), run("run-1"), end("run-1", outcome)] {
        session.append(fact).expect("appended");
    }
    session.save_derived().expect("saved");
    lab.clock.advance(Duration::from_secs(60));
}

#[test]
fn only_safe_names_are_ids() {
    let long = "a".repeat(129);
    let lab = Lab::new();
    for bad in ["", "../x", "a/b", ".hidden", "-x", "_x", "a b", "a\0", "a\n", "é", "..", &long, &"a".repeat(200)] {
        assert!(matches!(check_id(bad), Err(SessionError::BadId(_))), "{bad:?}");
        assert!(matches!(lab.store.find(&lab.world, &lab.workspace, bad), Err(SessionError::BadId(_))), "{bad:?}");
        let made = Session::create(&lab.world, &lab.store, &lab.workspace, bad, "r", Vec::new());
        assert!(matches!(made, Err(SessionError::BadId(_))), "{bad:?}");
    }
    for good in ["a", "A.b_c-9", "session-20261118-110640-0123abcd", &"a".repeat(128)] {
        assert!(check_id(good).is_ok(), "{good:?}");
    }
    assert!(!lab.temp.path().join("sessions").exists(), "a refused id makes no folder");
}

#[test]
fn a_new_id_says_when_and_never_comes_twice() {
    let lab = Lab::new();
    let (first, second) = (Store::new_id(&lab.world), Store::new_id(&lab.world));
    assert!(first.starts_with("session-20261118-110640-"), "{first}");
    assert_eq!(first.len(), "session-YYYYMMDD-HHMMSS-".len() + 8);
    assert!(first[24..].bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)), "{first}");
    assert_ne!(first, second);
    assert!(check_id(&first).is_ok());
}

#[test]
fn a_session_lies_under_the_hash_of_its_canonical_workspace() {
    use sha2::Digest;
    let lab = Lab::new();
    let canonical = lab.workspace.canonicalize().expect("canonical");
    let digest = sha2::Sha256::digest(canonical.as_os_str().as_encoded_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(lab.dir("s"), lab.temp.path().join("sessions").join(hash).join("s"));
    assert_eq!(lab.store.dir_of(&lab.workspace.join("../workspace"), "s"), lab.dir("s"));
}

#[test]
fn an_id_or_its_shortest_unique_prefix_finds_a_session() {
    let lab = Lab::new();
    for id in ["abc", "abd", "abcd", "x1"] {
        drop(lab.create(id));
    }
    let elsewhere = lab.temp.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    for id in ["x2", "far-1", "far-2"] {
        drop(Session::create(&lab.world, &lab.store, &elsewhere, id, "r", Vec::new()).expect("made"));
    }
    let find = |id: &str| lab.store.find(&lab.world, &lab.workspace, id);
    assert_eq!(find("abc").expect("exact"), lab.dir("abc"));
    assert_eq!(find("abd").expect("exact"), lab.dir("abd"));
    assert_eq!(find("x").expect("this workspace first"), lab.dir("x1"));
    assert_eq!(find("x2").expect("any workspace"), lab.store.dir_of(&elsewhere, "x2"));
    assert_eq!(find("far-1").expect("any workspace"), lab.store.dir_of(&elsewhere, "far-1"));
    match find("ab") {
        Err(SessionError::Ambiguous { prefix, ids }) => {
            assert_eq!((prefix.as_str(), ids), ("ab", vec!["abc".to_owned(), "abcd".into(), "abd".into()]));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(find("far"), Err(SessionError::Ambiguous { .. })));
    assert!(matches!(find("zz"), Err(SessionError::Unknown { id }) if id == "zz"));
}

#[test]
fn latest_is_the_one_updated_last_in_this_workspace() {
    let lab = Lab::new();
    let find = || lab.store.find(&lab.world, &lab.workspace, "latest");
    match find() {
        Err(SessionError::NoneSaved { workspace }) => assert_eq!(workspace, lab.workspace.display().to_string()),
        other => panic!("{other:?}"),
    }
    finished(&lab, "z-older", Outcome::Unmet);
    finished(&lab, "a-newer", Outcome::Unmet);
    assert_eq!(find().expect("found"), lab.dir("a-newer"));
    let opened = lab.open("z-older").expect("opened");
    opened.session.append(Fact::Notice { code: "c".into(), text: "t".into() }).expect("appended");
    opened.session.save_derived().expect("saved");
    assert_eq!(find().expect("found"), lab.dir("z-older"));
}

#[test]
fn a_list_is_newest_first_and_skips_what_is_broken_with_a_note() {
    let lab = Lab::new();
    assert_eq!(lab.store.list(&lab.world, &lab.workspace).0.len(), 0, "no store, no sessions, no note");
    finished(&lab, "one", Outcome::Met);
    finished(&lab, "two", Outcome::CostLimit);
    let running = lab.create("three");
    running.append(frozen()).expect("appended");
    running.append(run("run-1")).expect("appended");
    running.save_derived().expect("saved");
    let folder = lab.dir("one").parent().expect("a parent").to_owned();
    for (name, content) in [("empty", ""), ("bad", "nonsense\n")] {
        std::fs::create_dir(folder.join(name)).expect("a folder");
        std::fs::write(folder.join(name).join("session.jsonl"), content).expect("written");
    }
    std::fs::create_dir(folder.join(".not-an-id")).expect("a folder");
    std::fs::write(folder.join("a-file"), "").expect("a file");
    let (sessions, notes) = lab.store.list(&lab.world, &lab.workspace);
    let rows: Vec<_> = sessions.iter().map(|row| (row.id.as_str(), row.outcome, row.running)).collect();
    let expected =
        [("three", None, true), ("two", Some(Outcome::CostLimit), false), ("one", Some(Outcome::Met), false)];
    assert_eq!(rows, expected);
    assert_eq!(sessions[1].title, "Make the check pass");
    let digest = "928eda3f192d79b7855e2ab76dbcbc67f950cf4f2c9cca79bfc364d17bf2dca8";
    assert_eq!((sessions[1].goal_name.as_str(), sessions[1].goal_digest.as_str()), ("demo", digest));
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("`bad`") && notes[1].contains("`empty`"), "{notes:?}");
    drop(running);
    let (sessions, _) = lab.store.list(&lab.world, &lab.workspace);
    assert_eq!((sessions[0].outcome, sessions[0].running), (None, false), "it crashed");
}

#[test]
fn without_metadata_the_start_of_the_log_is_read() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.append(run("run-1")).expect("appended");
    session.append(frozen()).expect("appended");
    for content in [None, Some("not json"), Some("{}")] {
        if let Some(content) = content {
            std::fs::write(lab.dir("s").join("metadata.json"), content).expect("written");
        }
        let (sessions, notes) = lab.store.list(&lab.world, &lab.workspace);
        assert!(notes.is_empty(), "{notes:?}");
        let row = &sessions[0];
        assert_eq!((row.id.as_str(), row.title.as_str(), row.goal_name.as_str()), ("s", "Make the check pass", "demo"));
        assert_eq!(row.workspace, lab.workspace.display().to_string());
        assert!(row.running && row.outcome.is_none());
    }
}
