//! Reading, writing and editing, and what is out of reach.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use super::*;

#[tokio::test(flavor = "current_thread")]
async fn reading_gives_numbered_lines_and_marks_the_file() {
    let mut rig = Rig::new();
    rig.put("src/a.txt", "one\r\ntwo \x1b\nä");
    let ran = rig.call("file-read", json!({"path": "src/a.txt"})).await;
    assert_eq!(ran.text, "     1\tone\n     2\ttwo \\x1b\n     3\tä\n");
    assert_eq!((ran.marks[0].path.as_str(), ran.marks.len()), ("/shown/project/src/a.txt", 1));
    assert_eq!(ran.marks[0].sha256.len(), 64);
    let one = rig.ok("file-read", json!({"path": "/shown/project/src/../src/a.txt", "offset": 2, "limit": 1})).await;
    assert_eq!(
        one,
        "     2\ttwo \\x1b\n[lines 2-2 of 3; read on with file-read {\"path\":\"src/a.txt\",\"offset\":3}]"
    );
    assert!(rig.fails("file-read", json!({"path": "src/a.txt", "offset": 4})).await.contains("only 3 lines"));
    assert!(rig.refused("file-read", json!({"path": "src/a.txt", "offset": 0})).await.contains("at least 1"));
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_no_text_file_is_refused_with_what_it_is() {
    let mut rig = Rig::new();
    rig.put("x.png", [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 1_300]].concat());
    assert_eq!(
        rig.fails("file-read", json!({"path": "x.png"})).await,
        "error: `x.png` is binary (PNG image, 1,308 bytes)"
    );
    assert!(rig.fails("file-read", json!({"path": "."})).await.contains("`.` is a folder"));
    assert_eq!(rig.fails("file-read", json!({"path": "gone"})).await, "error: `gone` does not exist");
    assert!(rig.fails("file-read", json!({"path": "x.png/y"})).await.contains("not a directory"));
    rustix::fs::mknodat(rustix::fs::CWD, rig.path("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("a pipe");
    assert!(rig.fails("file-read", json!({"path": "pipe"})).await.contains("no regular file"));
    rig.put("huge", "");
    std::fs::File::options().write(true).open(rig.path("huge")).and_then(|f| f.set_len(65 << 20)).expect("a hole");
    assert!(rig.fails("file-read", json!({"path": "huge"})).await.contains("larger than 64 MiB (68,157,440 bytes)"));
    assert!(rig.refused("file-read", json!({"path": "a\u{0}b"})).await.contains("NUL"));
}

#[tokio::test(flavor = "current_thread")]
async fn spettros_own_files_and_environments_are_out_of_reach() {
    let mut rig = Rig::new();
    let home = rig.dir.path().canonicalize().expect("a path").join("home");
    std::fs::write(home.join("config.yaml"), "key: x").expect("a file");
    symlink(home.join("config.yaml"), rig.path("link")).expect("a link");
    symlink(&home, rig.path("folder")).expect("a link");
    symlink(home.join("sessions/new"), rig.path("dangling")).expect("a link");
    rig.put("ok", "x");
    for path in
        ["../home/config.yaml", "link", "folder/config.yaml", "folder/sessions/../config.yaml", "folder/sessions/s/log"]
    {
        for (tool, arguments) in [
            ("file-read", json!({"path": path})),
            ("file-write", json!({"path": path, "content": "x"})),
            ("file-write", json!({"path": path, "content": "x", "append": true})),
            ("file-edit", json!({"path": path, "old_string": "key", "new_string": "x"})),
            ("grep", json!({"pattern": "key", "path": path})),
            ("glob", json!({"path": path})),
        ] {
            let text = rig.refused(tool, arguments).await;
            assert!(text.contains("belongs to spettro itself"), "{tool} {path}: {text}");
        }
    }
    // A way up out of what does not exist leads nowhere.
    rig.fails("file-read", json!({"path": "gone/../../home/config.yaml"})).await;
    let text = rig.fails("file-write", json!({"path": "dangling", "content": "x", "append": true})).await;
    assert!(text.contains("leads nowhere") && !home.join("sessions/new").exists(), "{text}");
    assert_eq!(rig.ok("glob", json!({"path": ".."})).await, "ws/");
    assert_eq!(std::fs::read_to_string(home.join("config.yaml")).expect("a file"), "key: x");
    for path in
        ["/proc/self/environ", "/proc/1/environ", "/proc/thread-self/environ", "/proc/self/root/proc/self/environ"]
    {
        let text = rig.refused("file-read", json!({"path": path})).await;
        assert!(text.contains("environment"), "{path}: {text}");
    }
    assert!(rig.ok("file-read", json!({"path": "/proc/self/status"})).await.contains("\tName:"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_workspace_inside_spettros_home_is_the_agents_own() {
    let mut rig = Rig::new();
    let copy = rig.dir.path().canonicalize().expect("a path").join("home/copies/1");
    std::fs::create_dir_all(&copy).expect("a copy");
    rig.roots = Roots { real: copy, shown: "/shown/project".into() };
    rig.ok("file-write", json!({"path": "a", "content": "x"})).await;
    assert_eq!(rig.ok("glob", json!({"pattern": "*"})).await, "a");
    rig.refused("file-read", json!({"path": "../../config.yaml"})).await;
}

#[tokio::test(flavor = "current_thread")]
async fn writing_creates_and_replaces_only_what_was_read_and_stands_unchanged() {
    let mut rig = Rig::new();
    let ran = rig.call("file-write", json!({"path": "new/deep/a.txt", "content": "a\nb"})).await;
    assert_eq!(ran.text, "created new/deep/a.txt: 2 lines, 3 bytes");
    assert_eq!(ran.changed, ["/shown/project/new/deep/a.txt"]);
    assert_eq!(ran.marks[0].path, "/shown/project/new/deep/a.txt");
    // Written by itself: known.
    rig.ok("file-write", json!({"path": "new/deep/a.txt", "content": "c\n"})).await;
    rig.put("new/deep/a.txt", "somebody else");
    let text = rig.fails("file-write", json!({"path": "new/deep/a.txt", "content": "d"})).await;
    assert!(text.contains("`new/deep/a.txt` has changed since it was read; nothing was written"), "{text}");

    rig.put("b.sh", "#!/bin/sh\n");
    std::fs::set_permissions(rig.path("b.sh"), PermissionsExt::from_mode(0o751)).expect("a mode");
    let text = rig.fails("file-write", json!({"path": "b.sh", "content": "x"})).await;
    assert!(text.contains("`b.sh` exists and was not read"), "{text}");
    assert_eq!(rig.get("b.sh"), "#!/bin/sh\n");
    rig.ok("file-read", json!({"path": "b.sh"})).await;
    assert_eq!(rig.ok("file-write", json!({"path": "b.sh", "content": "x\n"})).await, "replaced b.sh: 1 line, 2 bytes");
    assert_eq!(rig.path("b.sh").metadata().expect("a file").permissions().mode() & 0o7777, 0o751);
    let left = RealDir.list(&rig.roots.real).expect("a list");
    assert!(left.iter().all(|entry| !entry.name.to_string_lossy().starts_with(".spettro-")), "{left:?}");

    assert!(rig.fails("file-write", json!({"path": "new", "content": ""})).await.contains("is a folder"));
    assert!(rig.refused("file-write", json!({"path": "x/", "content": ""})).await.contains("names a folder"));
    assert!(rig.fails("file-write", json!({"path": "b.sh/x", "content": ""})).await.contains("not a directory"));
}

#[tokio::test(flavor = "current_thread")]
async fn read_marks_survive_a_resume() {
    let mut rig = Rig::new();
    rig.put("a", "1");
    let mark = rig.call("file-read", json!({"path": "a"})).await.marks.remove(0);
    let marks = BTreeMap::from([(mark.path, mark.sha256)]);
    rig.tools = Tools::new(options(rig.dir.path().join("home")));
    rig.fails("file-write", json!({"path": "a", "content": "2"})).await;
    rig.tools.restore(marks, crate::event::TaskGraph::default());
    rig.ok("file-write", json!({"path": "a", "content": "2"})).await;
}

#[tokio::test(flavor = "current_thread")]
async fn appending_needs_no_reading_and_does_not_count_as_one() {
    let mut rig = Rig::new();
    rig.put("log", "a\n");
    let ran = rig.call("file-write", json!({"path": "log", "content": "b\n", "append": true})).await;
    assert_eq!((ran.text.as_str(), ran.marks.len()), ("appended to log: 2 lines, 4 bytes", 0));
    assert_eq!(rig.get("log"), "a\nb\n");
    rig.fails("file-write", json!({"path": "log", "content": ""})).await;
    rig.ok("file-read", json!({"path": "log"})).await;
    let ran = rig.call("file-write", json!({"path": "log", "content": "c\n", "append": true})).await;
    assert_eq!(ran.marks.len(), 1);
    rig.ok("file-write", json!({"path": "log", "content": ""})).await;
    rig.ok("file-write", json!({"path": "fresh", "content": "x", "append": true})).await;
    assert_eq!((rig.get("log"), rig.get("fresh")), (String::new(), "x".into()));
}

#[tokio::test(flavor = "current_thread")]
async fn links_are_written_through() {
    let mut rig = Rig::new();
    rig.put("real.txt", "1\n");
    symlink("real.txt", rig.path("link.txt")).expect("a link");
    let ran = rig.call("file-edit", json!({"path": "link.txt", "old_string": "1", "new_string": "2"})).await;
    assert_eq!(ran.changed, ["/shown/project/real.txt"]);
    assert_eq!(rig.get("real.txt"), "2\n");
    assert!(rig.path("link.txt").symlink_metadata().expect("a link").is_symlink());
}

#[tokio::test(flavor = "current_thread")]
async fn editing_is_all_or_nothing_and_answers_with_a_diff() {
    let mut rig = Rig::new();
    rig.put("a.rs", "fn a() {}\nfn b() {}\nfn c() {}\n");
    std::fs::set_permissions(rig.path("a.rs"), PermissionsExt::from_mode(0o640)).expect("a mode");
    let two = json!({"path": "a.rs", "edits": [{"old_string": "fn a", "new_string": "fn x"}, {"old_string": "fn q", "new_string": "y"}]});
    let text = rig.fails("multi-edit", two).await;
    assert!(
        text.starts_with("error: a.rs: `edits[1].old_string` was not found") && text.ends_with("nothing was changed"),
        "{text}"
    );
    let many = json!({"path": "a.rs", "old_string": "fn", "new_string": "pub fn", "replace_all": true, "expected_replacements": 2});
    assert!(rig.fails("file-edit", many).await.contains("3 places would be replaced, 2 were expected"));
    assert_eq!(rig.get("a.rs"), "fn a() {}\nfn b() {}\nfn c() {}\n");
    let ran = rig
        .call(
            "file-edit",
            json!({"path": "a.rs", "old_string": "fn b", "new_string": "fn x", "expected_replacements": 1}),
        )
        .await;
    assert_eq!(ran.text, "edited a.rs: 1 place\n@@ -1,3 +1,3 @@\n fn a() {}\n-fn b() {}\n+fn x() {}\n fn c() {}");
    assert_eq!((ran.changed.as_slice(), ran.marks.len()), (&["/shown/project/a.rs".to_owned()][..], 0));
    assert_eq!(rig.path("a.rs").metadata().expect("a file").permissions().mode() & 0o7777, 0o640);
    // Known as it stood: still known.
    rig.ok("file-read", json!({"path": "a.rs"})).await;
    let ran = rig.call("file-edit", json!({"path": "a.rs", "old_string": "x", "new_string": "z"})).await;
    assert_eq!(ran.marks.len(), 1);
    rig.ok("file-write", json!({"path": "a.rs", "content": ""})).await;
}

#[tokio::test(flavor = "current_thread")]
async fn the_forms_of_an_edit_do_not_mix() {
    let mut rig = Rig::new();
    rig.put("a", "x");
    for (arguments, part) in [
        (json!({"path": "a"}), "`old_string` is missing"),
        (json!({"path": "a", "old_string": "x"}), "`new_string` is missing"),
        (json!({"path": "a", "edits": []}), "`edits` must not be empty"),
        (
            json!({"path": "a", "edits": [{"old_string": "x", "new_string": "y"}], "old_string": "x"}),
            "does not go with",
        ),
        (json!({"path": "a", "old_string": "", "new_string": "y"}), "`old_string` must not be empty"),
    ] {
        let text = rig.refused("file-edit", arguments).await;
        assert!(text.contains(part), "{text}");
    }
    assert!(
        rig.fails("file-edit", json!({"path": "gone", "old_string": "x", "new_string": "y"}))
            .await
            .contains("does not exist")
    );
    assert_eq!(rig.get("a"), "x");
}

#[tokio::test(flavor = "current_thread")]
async fn bytes_that_are_no_text_survive_an_edit() {
    let mut rig = Rig::new();
    rig.put("latin", b"caf\xe9 = 1\n");
    let text = rig.ok("file-edit", json!({"path": "latin", "old_string": "= 1", "new_string": "= 2"})).await;
    assert!(text.contains("+caf\\xe9 = 2"), "{text}");
    assert_eq!(std::fs::read(rig.path("latin")).expect("a file"), b"caf\xe9 = 2\n");
}

/// What the sandbox grants: the workspace for writing, and one folder elsewhere for reading.
fn confined() -> Rig {
    use crate::process::sandbox::{Access, Files, Rule};
    Rig::with(|options| {
        let base = options.own_dirs[0].parent().expect("a folder").to_owned();
        for name in ["ws", "out"] {
            std::fs::create_dir_all(base.join(name)).expect("a folder");
            std::fs::write(base.join(name).join("file"), "mark\n").expect("a file");
        }
        let rule = |path: PathBuf, access| Rule { path, access };
        let rules = vec![rule(base.join("ws"), Access::Write), rule("/etc".into(), Access::Read)];
        options.policy = Rc::new(Policy { files: Files::WorkspaceWrite, rules, ..Policy::off() });
    })
}

#[tokio::test(flavor = "current_thread")]
async fn the_sandbox_of_commands_holds_for_file_tools_too() {
    let mut rig = confined();
    symlink(rig.path("../out"), rig.path("link")).expect("a link");
    rig.ok("file-read", json!({"path": "/etc/passwd"})).await;
    rig.ok("file-read", json!({"path": "/proc/self/root/etc/passwd"})).await;
    for path in ["../out/file", "link/file", "link/../out/file", "/proc/self/root/var", "/var/tmp"] {
        let text = rig.refused("file-read", json!({"path": path})).await;
        assert!(text.ends_with("lets be read: the workspace, /etc"), "{path}: {text}");
        rig.refused("grep", json!({"pattern": "mark", "path": path})).await;
    }
    for path in ["/etc/passwd", "/etc/spettro-test/new", "../out/new", "link/new", "../new", "/nowhere/new"] {
        let text = rig.refused("file-write", json!({"path": path, "content": "x", "append": true})).await;
        assert!(text.ends_with("lets be written: the workspace"), "{path}: {text}");
    }
    rig.refused("file-edit", json!({"path": "../out/file", "old_string": "mark", "new_string": "x"})).await;
    rig.refused("glob", json!({"path": "../out"})).await;
    assert_eq!(rig.ok("grep", json!({"pattern": "mark"})).await, "file:1:mark", "the link is not followed");
    assert_eq!(std::fs::read_to_string(rig.path("../out/file")).expect("a file"), "mark\n");
}

#[tokio::test(flavor = "current_thread")]
async fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut rig = confined();
    let (folder, aside, out) = (rig.path("folder"), rig.path("aside"), rig.path("../out"));
    std::fs::create_dir(&folder).expect("a folder");
    symlink(&out, &aside).expect("a link");
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let until = over.clone();
    let swap = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            // In one step each: now it is the link, now the folder.
            renameat_with(CWD, &folder, CWD, &aside, RenameFlags::EXCHANGE).expect("they change places");
        }
    });
    for n in 0..400 {
        let path = format!("folder/new-{n}");
        // Refused, or written where it was meant to be.
        rig.call("file-write", json!({"path": path, "content": "x"})).await;
        let ran = rig.call("file-read", json!({"path": "folder/file"})).await;
        assert!(!ran.text.contains("mark"), "{}", ran.text);
    }
    over.store(true, Ordering::Relaxed);
    swap.join().expect("it ends");
    let out = RealDir.list(&rig.path("../out")).expect("a list");
    assert_eq!(out.len(), 1, "{out:?}");
}
