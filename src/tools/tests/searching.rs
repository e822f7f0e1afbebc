//! `grep` and `glob`.

use serde_json::json;

use super::*;

fn project() -> Rig {
    let rig = Rig::new();
    rig.put(".gitignore", "target/\n*.log\n");
    rig.put("b.rs", "one\nneedle b\nthree\n");
    rig.put("a/deep/x.rs", "Needle x\nneedle y\n");
    rig.put("a.py", "needle = 1\n");
    rig.put("a/data.bin", b"needle\n\0");
    rig.put("target/out.rs", "needle out\n");
    rig.put("a/debug.log", "needle log\n");
    rig.put(".hidden", "needle h\n");
    rig.put(".git/config", "needle git\n");
    std::os::unix::fs::symlink("b.rs", rig.path("z-link.rs")).expect("a link");
    rig
}

#[tokio::test(flavor = "current_thread")]
async fn grep_skips_what_git_ignores_and_binary_files_and_sorts() {
    let mut rig = project();
    assert_eq!(
        rig.ok("grep", json!({"pattern": "needle"})).await,
        ".hidden:1:needle h\na.py:1:needle = 1\na/deep/x.rs:2:needle y\nb.rs:2:needle b"
    );
    assert_eq!(
        rig.ok("grep", json!({"pattern": "NEEDLE [xy]", "case_insensitive": true, "path": "a"})).await,
        "a/deep/x.rs:1:Needle x\na/deep/x.rs:2:needle y"
    );
    assert_eq!(
        rig.ok("grep", json!({"pattern": "needle", "output_mode": "files", "glob": "*.rs"})).await,
        "a/deep/x.rs\nb.rs"
    );
    assert_eq!(
        rig.ok("grep", json!({"pattern": "(?i)needle", "output_mode": "count", "glob": "**/*.{rs,py}"})).await,
        "a.py:1\na/deep/x.rs:2\nb.rs:1"
    );
    assert_eq!(rig.ok("grep", json!({"pattern": "needle", "type": "py"})).await, "a.py:1:needle = 1");
    assert_eq!(rig.ok("grep", json!({"pattern": "needle", "glob": "a/**"})).await, "a/deep/x.rs:2:needle y");
    assert_eq!(rig.ok("grep", json!({"pattern": "absent"})).await, "[no matches]");
    assert_eq!(
        rig.ok("grep", json!({"pattern": "needle", "path": "b.rs", "context": 1})).await,
        "b.rs-1-one\nb.rs:2:needle b\nb.rs-3-three"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_named_on_purpose_is_searched_although_ignored() {
    let mut rig = project();
    assert_eq!(rig.ok("grep", json!({"pattern": "needle", "path": "target"})).await, "target/out.rs:1:needle out");
    assert_eq!(rig.ok("grep", json!({"pattern": "needle", "path": "a/debug.log"})).await, "a/debug.log:1:needle log");
    assert_eq!(rig.ok("glob", json!({"pattern": "*.rs", "path": "target"})).await, "target/out.rs");
    assert_eq!(
        rig.fails("grep", json!({"pattern": "needle", "path": "a/data.bin"})).await,
        "error: `a/data.bin` is binary"
    );
    assert!(rig.fails("grep", json!({"pattern": "x", "path": "gone"})).await.contains("`gone` does not exist"));
}

#[tokio::test(flavor = "current_thread")]
async fn grep_limits_say_what_they_left_out() {
    let mut rig = Rig::new();
    rig.put("b", "hit 1\nhit 2\n");
    rig.put("a", "hit 3\nmiss\nhit 4\nmiss\n");
    assert_eq!(
        rig.ok("grep", json!({"pattern": "hit", "max_results": 3})).await,
        "a:1:hit 3\na:3:hit 4\nb:1:hit 1\n[3 of 4 matching lines shown; narrow the search or raise max_results]"
    );
    assert_eq!(
        rig.ok("grep", json!({"pattern": "hit", "max_results": 1, "output_mode": "files"})).await,
        "a\n[1 of 2 files shown; narrow the search or raise max_results]"
    );
    let text = rig.ok("grep", json!({"pattern": "hit", "max_results": 1, "context": 1})).await;
    assert!(text.starts_with("a:1:hit 3\n") && !text.contains("hit 4"), "{text}");
    rig.put("long", format!("hit {}\n", "x".repeat(9_000)));
    let text = rig.ok("grep", json!({"pattern": "hit", "path": "long"})).await;
    assert!(text.ends_with("x…") && text.chars().count() == "long:1:".len() + 500);
    rig.put("many", "hit a line that is somewhat longer\n".repeat(500));
    let ran = rig.call("grep", json!({"pattern": "somewhat"})).await;
    let at = ran.text.find("[truncated: ").expect("a footer");
    assert!(at <= 16_001 && at > 15_900 && ran.spool.is_some());
    assert!(ran.full.text().lines().count() == 500);
}

#[tokio::test(flavor = "current_thread")]
async fn grep_refuses_what_it_cannot_search_for() {
    let mut rig = Rig::new();
    for (arguments, part) in [
        (json!({"pattern": "("}), "`pattern` is no regular expression"),
        (json!({"pattern": "a\nb"}), "`pattern` is no regular expression for one line"),
        (json!({"pattern": "a", "glob": "{a"}), "`glob` is no valid glob"),
        (json!({"pattern": "a", "type": "nonsense"}), "`type` is no known file type"),
        (
            json!({"pattern": "a", "output_mode": "json"}),
            "`output_mode` must be one of \"content\", \"files\", \"count\"",
        ),
        (json!({"pattern": "a", "context": 99}), "`context` must be at most 20"),
    ] {
        let text = rig.refused("grep", arguments).await;
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn glob_finds_by_pattern_and_lists_without_one() {
    let mut rig = project();
    assert_eq!(rig.ok("glob", json!({"pattern": "**/*.rs"})).await, "a/deep/x.rs\nb.rs\nz-link.rs");
    assert_eq!(rig.ok("glob", json!({"pattern": "*.{rs,py}"})).await, "a.py\nb.rs\nz-link.rs");
    assert_eq!(rig.ok("glob", json!({"pattern": "./deep/*", "path": "a"})).await, "a/deep/x.rs");
    assert_eq!(rig.ok("glob", json!({"pattern": "*.go"})).await, "[no files match]");
    assert_eq!(rig.ok("glob", json!({})).await, ".git/\n.gitignore\n.hidden\na/\na.py\nb.rs\ntarget/\nz-link.rs@");
    assert_eq!(rig.ok("ls", json!({"path": "a"})).await, "data.bin\ndebug.log\ndeep/");
    assert_eq!(rig.ok("ls", json!({"path": "a.py"})).await, "a.py");
    assert!(rig.fails("ls", json!({"path": "gone"})).await.contains("does not exist"));
    for pattern in ["/etc/*", "../*", "a/../../*"] {
        assert!(rig.refused("glob", json!({"pattern": pattern})).await.contains("must be relative"));
    }
    rig.put("new\nline", "");
    assert_eq!(rig.ok("glob", json!({"pattern": "new*"})).await, "new\\x0aline");
}

#[tokio::test(flavor = "current_thread")]
async fn glob_gives_a_thousand_paths_at_most() {
    let mut rig = Rig::new();
    for n in 0..1_005 {
        rig.put(&format!("d/f{n:04}"), "");
    }
    let text = rig.ok("glob", json!({"pattern": "**"})).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[999]), (1_001, "d/f0000", "d/f0999"));
    assert_eq!(lines[1_000], "[1,000 of 1,005 shown; narrow the pattern or the path]");
}

#[tokio::test(flavor = "current_thread")]
async fn results_outside_the_workspace_are_shown_as_they_are() {
    let mut rig = Rig::new();
    let outside = tempfile::tempdir().expect("a folder");
    let path = outside.path().canonicalize().expect("a path");
    std::fs::write(path.join("f.txt"), "needle\n").expect("a file");
    let shown = path.to_string_lossy().into_owned();
    assert_eq!(rig.ok("grep", json!({"pattern": "needle", "path": shown})).await, format!("{shown}/f.txt:1:needle"));
}
