//! One writer a session, one run a workspace.

use super::*;

#[test]
fn a_second_writer_waits_five_seconds_and_names_the_holder() {
    let lab = Lab::new();
    let session = lab.create("s");
    let before = lab.clock.elapsed();
    let error = lab.open("s").err().expect("refused");
    let waited = lab.clock.elapsed() - before;
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(6), "{waited:?}");
    let SessionError::Busy { what, holder, .. } = error else { panic!("{error:?}") };
    assert_eq!(what, "session `s`");
    let pid = std::process::id().to_string();
    for part in [pid.as_str(), "run-1", "2026-11-18T11:06:40.123Z", "session s"] {
        assert!(holder.contains(part), "{holder}");
    }
    drop(session);
    assert!(lab.open("s").is_ok(), "released with the session");
}

#[test]
fn a_writer_that_ends_meanwhile_is_followed() {
    let lab = Lab::new();
    let session = lab.create("s");
    let dir = lab.dir("s");
    block_on(async {
        let release = async {
            lab.world.clock.sleep(Duration::from_secs(1)).await;
            drop(session);
        };
        let (opened, ()) = tokio::join!(Session::open(&lab.world, &dir, "run-2", Vec::new()), release);
        assert!(opened.is_ok(), "{:?}", opened.err());
    });
}

#[test]
fn a_clone_keeps_the_lock() {
    let lab = Lab::new();
    let session = lab.create("s");
    let clone = session.clone();
    drop(session);
    assert!(matches!(lab.open("s").err(), Some(SessionError::Busy { .. })));
    drop(clone);
    assert!(lab.open("s").is_ok());
}

#[test]
fn reading_needs_no_lock() {
    let lab = Lab::new();
    let session = lab.create("s");
    session.append(user("a")).expect("appended");
    assert_eq!(Session::read(&lab.dir("s")).expect("read").1.len(), 1);
}

#[test]
fn one_run_a_workspace() {
    let lab = Lab::new();
    let home = lab.temp.path().join("home");
    let other = lab.temp.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    block_on(async {
        let held = WorkspaceLock::take(&lab.world, &home, &lab.workspace, "run-7").await.expect("taken");
        WorkspaceLock::take(&lab.world, &home, &other, "run-8").await.expect("another workspace is free");
        // The same folder by another name is the same workspace.
        let roundabout = lab.workspace.join("..").join("workspace");
        let error = WorkspaceLock::take(&lab.world, &home, &roundabout, "run-9").await.expect_err("held");
        let SessionError::Busy { what, holder, .. } = error else { panic!("{error:?}") };
        assert!(what.contains("workspace"), "{what}");
        assert!(holder.contains("run-7") && holder.contains(&std::process::id().to_string()), "{holder}");
        drop(held);
        WorkspaceLock::take(&lab.world, &home, &lab.workspace, "run-9").await.expect("free again");
    });
}

#[test]
fn a_lock_left_by_a_dead_process_holds_nobody() {
    let lab = Lab::new();
    drop(lab.create("s"));
    let stale = r#"{"host":"h","pid":1,"run":"r","since":"2020-01-01T00:00:00Z","session":"s"} and a long tail"#;
    std::fs::write(lab.dir("s").join("lock"), stale).expect("written");
    let opened = lab.open("s").expect("the kernel released it");
    let content = read_text(&lab.dir("s").join("lock"));
    let holder: serde_json::Value = serde_json::from_str(&content).expect("nothing of the old holder is left");
    assert_eq!(holder["run"], "run-2");
    assert_eq!(holder["pid"], std::process::id());
    assert_eq!(holder["session"], "s");
    drop(opened);
}

#[test]
fn a_lock_names_who_is_live_and_where_it_listens() {
    let lab = Lab::new();
    let session = lab.create("s");
    let dir = lab.dir("s");
    let found = live(&dir).expect("it is open");
    assert_eq!((found.pid, found.run.as_str(), found.socket), (std::process::id(), "run-1", None));
    session.name_socket(Path::new("/run/user/0/0123abcd.sock")).expect("named");
    let found = live(&dir).expect("it is open");
    assert_eq!(found.socket.as_deref(), Some(Path::new("/run/user/0/0123abcd.sock")));
    drop(session);
    assert_eq!(live(&dir), None, "what a dead run left in its lock is not believed");
    let again = lab.open("s").expect("it is free");
    assert_eq!(live(&dir).expect("it is open again").socket, None);
    drop(again);
}
