//! Names, arguments, what is offered, and the tools without effects outside.

use serde_json::json;

use super::*;
use crate::event::{Task, TaskGraph, TaskStatus};

#[tokio::test(flavor = "current_thread")]
async fn every_misuse_is_an_error_result_and_nothing_runs() {
    let mut rig = Rig::new();
    for (name, arguments, part) in [
        ("save-memory", r#"{"fact":"x"}"#, "unknown tool `save-memory`"),
        ("web-fetch", r#"{"url":"http://x"}"#, "unknown tool `web-fetch`"),
        ("", "{}", "unknown tool ``"),
        ("glob", "", "one JSON object: they are empty"),
        ("glob", "null", "one JSON object: got null"),
        ("glob", "{\"path\":", "one JSON object: "),
        ("glob", "[]", "one JSON object: got a list"),
        ("grep", "{}", "`pattern` is missing"),
        ("todo-write", r#"{"todos":"x"}"#, "`todos` must be a list, got a string"),
        ("todo-write", r#"{"todos":[{"content":"x","status":"later"}]}"#, "`todos[0].status` must be one of pending"),
        ("todo-write", r#"{"todos":[{"content":"x","prio":1}]}"#, "`todos[0].prio` is no known field"),
        ("todo-write", r#"{"merge":true}"#, "`todos` is missing"),
        ("todo-write", r#"{"todos":[{"content":"  "}]}"#, "`todos[0].content` must be"),
        ("todo-write", r#"{"todos":[{"id":" a","content":"x"}]}"#, "`todos[0].id` must be"),
        ("goal-complete", "{}", "`summary` is missing"),
    ] {
        let ran = rig.within(name, arguments, usize::MAX).await;
        assert_eq!(ran.status, ToolStatus::Refused, "{name} {arguments}");
        assert!(ran.text.contains(part), "{name} {arguments}: {}", ran.text);
    }
    let deep = format!("{{\"path\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(rig.within("glob", &deep, usize::MAX).await.status, ToolStatus::Refused);
    let long = rig.within(&"n\n".repeat(9_000), "{}", usize::MAX).await;
    assert!(long.tool.chars().count() <= 120 && long.text.len() < 200);
    assert!(rig.exec.asked.borrow().is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn allow_and_deny_decide_what_is_offered() {
    let names = |tools: &Tools| tools.schemas().iter().map(|schema| schema.name).collect::<Vec<_>>();
    let all = Rig::new();
    assert_eq!(
        names(&all.tools),
        [
            "bash",
            "job-output",
            "job-kill",
            "wait",
            "file-read",
            "file-write",
            "file-edit",
            "grep",
            "glob",
            "todo-write",
            "tool-output",
            "goal-complete"
        ]
    );
    let mut rig = Rig::with(|options| options.allow = Some(vec!["file-read".into()]));
    assert_eq!(names(&rig.tools), ["file-read", "tool-output"]);
    assert!(rig.refused("bash", json!({"command": "x"})).await.contains("`bash` is not available"));
    let rig = Rig::with(|options| options.allow = Some(vec!["goal-complete".into()]));
    assert_eq!(names(&rig.tools), ["goal-complete"]);
    let rig = Rig::with(|options| options.deny = vec!["bash".into(), "tool-output".into(), "wait".into()]);
    assert!(!names(&rig.tools).iter().any(|name| ["bash", "tool-output", "wait"].contains(name)));
}

#[test]
fn calls_are_described_and_known_to_change_the_workspace_or_not() {
    let rig = Rig::new();
    for (name, arguments, tool, summary, changes) in [
        ("bash", r#"{"command":"cargo test"}"#, "bash", "\"cargo test\"", true),
        ("shell_exec", r#"{"command":"ls"}"#, "bash", "\"ls\"", true),
        ("bash", r#"{"job_id":"job-1"}"#, "bash", "job-1", false),
        ("bash-output", r#"{"job_id":"job-1"}"#, "job-output", "job-1", false),
        ("read_file", r#"{"path":"src/main.rs"}"#, "file-read", "src/main.rs", false),
        ("file-write", r#"{"path":"a\u001bb","content":""}"#, "file-write", "a b", true),
        ("multi-edit", r#"{"path":"x","edits":[]}"#, "file-edit", "x", true),
        ("grep", r#"{"pattern":"fn main"}"#, "grep", "\"fn main\"", false),
        ("ls", r#"{"path":"src"}"#, "glob", "src", false),
        ("glob", "{}", "glob", ".", false),
        ("task-delete", r#"{"id":"task-1"}"#, "todo-write", "delete 1", false),
        ("todo-write", r#"{"todos":[{},{}],"merge":true}"#, "todo-write", "merge 2", false),
        ("todo-write", "{}", "todo-write", "list", false),
        ("wait", r#"{"timeout":3}"#, "wait", "any job", false),
        ("tool-output", r#"{"id":7}"#, "tool-output", "spool:7", false),
        ("what\never", "{}", "what ever", "", false),
        ("bash", "not json", "bash", "", false),
    ] {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() };
        assert_eq!(rig.tools.describe(&call), (tool.to_owned(), summary.to_owned()), "{name} {arguments}");
        assert_eq!(rig.tools.changes(&call), changes, "{name} {arguments}");
    }
    let long = json!({"command": "x".repeat(500)}).to_string();
    let call = ToolCall { id: "1".into(), name: "bash".into(), arguments: long };
    assert_eq!(rig.tools.describe(&call).1.chars().count(), 120);
}

#[tokio::test(flavor = "current_thread")]
async fn tasks_are_kept_between_calls_and_aliases_do_the_same() {
    let mut rig = Rig::new();
    let ran = rig
        .call("todo-write", json!({"todos": [{"content": "a"}, {"content": "b", "dependencies": ["task-1"]}]}))
        .await;
    assert_eq!(ran.tasks.as_ref(), Some(rig.tools.tasks()));
    assert_eq!(rig.tools.tasks().tasks[1].dependencies, ["task-1"]);
    let read = rig.call("task-list", json!({})).await;
    assert!(read.tasks.is_none() && read.text.starts_with("2 tasks, 2 open\n{\"id\":\"task-1\""), "{}", read.text);
    assert_eq!(rig.ok("task-get", json!({"id": "task-2"})).await, read.text);
    assert!(rig.fails("task-get", json!({"id": "task-9"})).await.contains("no task `task-9`"));
    rig.ok("task-create", json!({"content": "c", "status": "todo"})).await;
    assert!(rig.fails("task-create", json!({"id": "task-1", "content": "c"})).await.contains("there already"));
    assert!(rig.fails("task-update", json!({"id": "task-9", "status": "done"})).await.contains("no task `task-9`"));
    let text = rig.fails("task-update", json!({"id": "task-2", "status": "running"})).await;
    assert!(text.contains("cannot be in_progress while it waits for task-1"), "{text}");
    rig.ok("task-update", json!({"id": "task-1", "status": "done"})).await;
    rig.ok("task-update", json!({"id": "task-2", "status": "active"})).await;
    rig.ok("task-delete", json!({"id": "task-1"})).await;
    let stored = rig.tools.tasks().clone();
    let shown: Vec<(&str, TaskStatus)> = stored.tasks.iter().map(|task| (task.id.as_str(), task.status)).collect();
    assert_eq!(shown, [("task-2", TaskStatus::InProgress), ("task-3", TaskStatus::Pending)]);
    assert!(stored.tasks[0].dependencies.is_empty());

    let mut resumed = Rig::new();
    resumed.tools.restore(BTreeMap::new(), stored.clone());
    resumed.ok("todo-write", json!({"merge": true, "todos": [{"content": "d"}]})).await;
    assert_eq!(resumed.tools.tasks().tasks.last().map(|task| task.id.as_str()), Some("task-4"));
    resumed.tools.restore(BTreeMap::new(), TaskGraph::default());
    assert_eq!(resumed.ok("todo-write", json!({})).await, "no tasks");
    let _: &Task = &stored.tasks[0];
}

#[tokio::test(flavor = "current_thread")]
async fn a_cut_result_is_read_on_with_tool_output() {
    let mut rig = Rig::new();
    let body: String = (0..3_000).map(|n| format!("wörd {n}\n")).collect();
    rig.put("big.txt", &body);
    let ran = rig.call("grep", json!({"pattern": "w", "max_results": 9_999})).await;
    assert_eq!(ran.spool, Some(1));
    let (head, footer) = ran.text.rsplit_once('\n').expect("a footer");
    let arguments = &footer[footer.find('{').expect("arguments")..=footer.find('}').expect("a brace")];
    let more = rig.within("tool-output", arguments, usize::MAX).await;
    assert_eq!(more.status, ToolStatus::Ok);
    let (header, chunk) = more.text.split_once('\n').expect("a header");
    assert!(header.starts_with(&format!("output=spool:1 size={} next_offset=", ran.full.text().len())), "{header}");
    assert!(header.ends_with(" (more available)") && chunk.len() <= 8_000 && chunk.len() > 7_990);
    assert!(ran.full.text().starts_with(&format!("{head}\n{chunk}")));
    // A chunk fits the budget with its header, whatever the limit.
    let small = rig.within("tool-output", r#"{"id":"spool:1","limit":90000}"#, 600).await;
    assert!(small.text.chars().count() <= 600 && small.spool.is_none(), "{}", small.text);
    assert!(rig.fails("tool-output", json!({"id": "spool:99"})).await.contains("no output `spool:99`"));
    assert!(rig.refused("tool-output", json!({"id": "../1"})).await.contains("`id` must be"));
}

#[tokio::test(flavor = "current_thread")]
async fn the_goal_is_said_to_be_reached() {
    let mut rig = Rig::new();
    let ran = rig.call("goal-complete", json!({"summary": "all done", "verified": "cargo test"})).await;
    assert_eq!(ran.complete, Some(("all done".into(), Some("cargo test".into()))));
    assert_eq!(rig.call("goal-complete", json!({"summary": "x"})).await.complete, Some(("x".into(), None)));
}
