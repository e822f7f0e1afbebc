//! What spans a session and what begins anew with a resume.

use super::support::{Scene, append, audit, facts, judge, money, worker};
use crate::provider::{Reply, Script, Usage, respond_with};

#[test]
fn after_the_iterations_are_used_up_more_of_them_go_on_with_a_continuation() {
    let script = Script::new().one_session().agent(worker(append)).judge(judge(4));
    let scene = Scene::new(script, "goal: Write.\nlimits: {iterations: 2}");
    let first = scene.run().expect_code(10).result();
    assert_eq!((first["iterations"].as_u64(), first["steps"].as_u64()), (Some(2), Some(4)));
    let asked = scene.provider.agent_requests().len();
    // The limit spans the session.
    let same = scene.resume(&[]).expect_code(10).result();
    assert_eq!(same["iterations"], 2);
    assert_eq!(scene.provider.agent_requests().len(), asked, "no iteration is left");

    let finished = scene.resume(&["--max-iterations", "5"]).expect_code(0);
    audit(&scene, &finished, 4);
    let next = &scene.provider.agent_requests()[asked];
    let text = next.new_text();
    assert!(text.contains("The goal is not met yet: 2 lines are not enough"), "{text}");
    assert!(text.contains("Next: Write another line."), "{text}");

    let result = finished.result();
    assert_eq!(result["iterations"], 4);
    assert_eq!(result["run_usage"]["iterations"], 2, "of this run alone");
    assert_eq!(result["run_usage"]["calls"], 6);
    let (before, now) = (first["active_ms"].as_u64(), result["active_ms"].as_u64());
    assert!(now > before, "time goes on: {before:?} {now:?}");
    assert!(result["duration_ms"].as_u64() < now, "the duration is this run's alone: {result}");
    let before = first["total_cost_usd"].as_f64().expect("an amount");
    let of_run = result["run_usage"]["cost"].as_f64().expect("an amount") / 1e6;
    let total = result["total_cost_usd"].as_f64().expect("an amount");
    assert!((before + of_run - total).abs() < 1e-9, "{before} + {of_run} = {total}");
    scene.provider.finish();
}

#[test]
fn steps_span_the_session_too() {
    let script = Script::new().one_session().agent(worker(append)).judge(judge(3));
    let scene = Scene::new(script, "goal: Write.\nlimits: {steps: 2}");
    let first = scene.run().expect_code(10).result();
    assert_eq!((first["steps"].as_u64(), &first["limit_hit"]), (Some(2), &"limits.steps".into()));
    let asked = scene.provider.requests().len();
    let same = scene.resume(&[]).expect_code(10).result();
    assert_eq!((same["steps"].as_u64(), &same["limit_hit"]), (Some(2), &"limits.steps".into()));
    assert_eq!(scene.provider.requests().len(), asked);
    let finished = scene.resume(&["--max-steps", "20"]).expect_code(0);
    audit(&scene, &finished, 3);
    scene.provider.finish();
}

/// Each reply of the agent costs so many dollars: at 3 dollars a million.
fn dear(dollars: u64) -> crate::provider::Step {
    respond_with(move |request| {
        let n = super::support::iteration_of(request);
        let reply = if request.tool_results().is_empty() {
            Reply::bash(&append(n))
        } else {
            Reply::text(&format!("Iteration {n} has its line."))
        };
        reply.usage_of(Usage { input: dollars * 333_334, output: 1, ..Usage::default() })
    })
    .forever()
}

#[test]
fn money_is_added_to_what_was() {
    let script = Script::new().one_session().agent(dear(3)).judge(judge(3));
    let scene = Scene::new(script, "goal: Write.\nlimits: {cost: 5.00}\nmodel: MODEL\n");
    // Its own window: the sandbox's would not hold what is reported.
    let model = scene.sandbox.model_yaml(&scene.provider, "test/model-1").replace("200000", "2000000");
    scene.sandbox.goal(&scene.provider, &format!("goal: Write.\nlimits: {{cost: 5.00}}\n{model}"));
    let first = scene.run().expect_code(13).result();
    assert_eq!(first["limit_hit"], "limits.cost");
    let asked = scene.provider.requests().len();
    // Nothing is left, and nothing is asked.
    scene.resume(&[]).expect_code(13);
    assert_eq!(scene.provider.requests().len(), asked);

    let second = scene.resume(&["--max-cost", "+5"]).expect_code(13).result();
    assert_eq!(second["limits"]["cost"], 10_000_000, "{second}");
    assert!(scene.provider.requests().len() > asked);
    // What was is ten now.
    let third = scene.resume(&["--max-cost", "+20.00"]).expect_code(0);
    let result = third.result();
    assert_eq!(result["limits"]["cost"], 30_000_000, "{result}");
    money(&scene, &scene.lines(), &result);
    for bad in ["+0", "+", "+-1", "+x", "++5"] {
        scene.resume(&["--max-cost", bad]).expect_code(2);
    }
    scene.provider.finish();
}

#[test]
fn the_stall_count_begins_anew() {
    let words = respond_with(|request| Reply::text(&format!("Thought {}.", request.n))).forever();
    let script = Script::new().one_session().agent(words).judge(judge(9));
    let scene = Scene::new(script, "goal: Think.\nlimits: {stall: 2, iterations: 20}");
    let first = scene.run().expect_code(12).result();
    let stalled_at = first["iterations"].as_u64().expect("a number");
    let again = scene.resume(&[]);
    let result = again.result();
    let more = result["iterations"].as_u64().expect("a number") - stalled_at;
    // Two without progress, and the one after the nudge.
    assert_eq!((again.code, more), (Some(12), 3), "{}", again.stderr);
    scene.provider.finish();
}

#[test]
fn the_error_count_begins_anew() {
    let script =
        Script::new().one_session().agent(Reply::refusal("No.").repeat(5)).agent(worker(append)).judge(judge(1));
    let scene = Scene::new(script, "goal: Write.\nlimits: {consecutive_errors: 3}");
    scene.run().expect_code(24);
    assert_eq!(scene.provider.agent_requests().len(), 3);
    // Two more refusals, then a reply.
    let finished = scene.resume(&[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(facts(&scene.lines(), "turn").len(), 6);
    scene.provider.finish();
}

#[test]
fn tasks_and_read_marks_are_there_after_a_resume() {
    let todo = serde_json::json!({"todos": [{"id": "a", "content": "first", "status": "in_progress"}]});
    let script = Script::new()
        .one_session()
        .agent(Reply::call("todo-write", todo).and_call("file-read", serde_json::json!({"path": "a.txt"})))
        .agent(Reply::text("never").stall())
        .agent(
            Reply::call("todo-write", serde_json::json!({}))
                .and_call("file-write", serde_json::json!({"path": "a.txt", "content": "new\n"})),
        )
        .agent(Reply::text("done"))
        .judge(Reply::verdict("met", "ok", ""));
    let scene = Scene::new(script, "goal: Write.");
    scene.sandbox.write("a.txt", "old\n");
    let running = scene.start();
    scene.provider.wait_for_request(2, crate::sandbox::PATIENCE);
    running.kill();
    scene.resume(&[]).expect_code(0);
    let results = scene.provider.agent_requests().last().expect("a request").tool_results();
    assert!(results[0].text.contains("first"), "{results:?}");
    assert!(!results[1].is_error, "it had been read before: {results:?}");
    assert_eq!(scene.sandbox.read("a.txt"), "new\n");
    scene.provider.finish();
}
