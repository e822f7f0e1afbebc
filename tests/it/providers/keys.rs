//! Keys that stand in files and come from commands: nobody else sees them, and what prints one leaves nothing behind.

use rustix::process::Signal;
use spettro::event::Outcome;

use crate::goal::support::{Case, content, met};
use crate::provider::{Lane, Reply, Request, Script, respond_with};
use crate::resume::support::{alive, eventually, pids};
use crate::sandbox::{PATIENCE, Sandbox};
use crate::sandboxed::support::landlock;

const KEY: &str = "sk-corp-0000-of-a-file";

fn keyed(url: &str, key: &str) -> String {
    format!(
        "goal: x\nproviders: {{corp: {{wire: anthropic, base_url: \"{url}\", {key}}}}}\n\
         model: {{id: corp/m, context_window: 200000}}\n"
    )
}

#[test]
fn what_a_key_command_leaves_running_is_ended_with_it() {
    let sandbox = Sandbox::new();
    sandbox.set("ANTHROPIC_API_KEY", "sk-not-for-others").set("A_VAULT_TOKEN", "what-it-needs");
    let root = sandbox.root();
    let script = format!(
        "cd {0}\n(setsid sleep 300 >/dev/null 2>&1 & echo $! >> pids)\nsleep 300 & echo $! >> pids\n\
         env > seen\npwd > where\necho noise >&2\necho {KEY}\n",
        root.display()
    );
    let path = sandbox.write(root.join("key.sh"), script);
    let provider = content().any_key().start();
    let yaml = keyed(&provider.url(), &format!("api_key_command: [sh, {}]", path.display()));
    let case = Case::of(sandbox, provider, &yaml);
    case.run().expect(Outcome::Met);
    let left = pids(&root.join("pids"));
    assert_eq!(left.len(), 2, "{left:?}");
    eventually("both of them are gone", || !left.iter().any(|pid| alive(*pid)));
    assert!(case.provider.requests().iter().all(|request| request.header("x-api-key") == Some(KEY)));
    let seen = case.sandbox.read(root.join("seen"));
    assert!(seen.contains("A_VAULT_TOKEN=what-it-needs") && !seen.contains("sk-not-for-others"), "{seen}");
    case.provider.finish();
}

#[test]
fn a_signal_ends_a_run_that_waits_for_its_key() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    let script = format!("echo $$ >> {}\nexec sleep 300\n", root.join("pids").display());
    let path = sandbox.write(root.join("key.sh"), script);
    let provider = content().any_key().start();
    let yaml = keyed(&provider.url(), &format!("api_key_command: [sh, {}]", path.display()));
    let case = Case::of(sandbox, provider, &yaml);
    let running = case.sandbox.spawn(["run", "--goal", case.goal.to_str().expect("UTF-8")]);
    eventually("the command runs", || !pids(&root.join("pids")).is_empty());
    running.signal(Signal::TERM);
    let finished = running.wait(PATIENCE);
    assert_eq!(finished.signal, Some(15), "{}", finished.stderr);
    let left = pids(&root.join("pids"));
    eventually("it is gone", || !left.iter().any(|pid| alive(*pid)));
    assert!(case.provider.requests().is_empty());
}

#[test]
fn the_agent_cannot_read_the_file_of_a_key_nor_have_it_where_it_works() {
    let sandbox = Sandbox::new();
    let file = sandbox.write(sandbox.home().join("corp/key"), KEY);
    sandbox.write(sandbox.home().join("corp/other"), "no secret");
    let name = file.display().to_string();
    let looks = respond_with(move |request: &Request| match request.lane_n {
        1 => Reply::bash(&format!("cat {name} > copy; cat {} > other; true", name.replace("key", "other"))),
        2 => Reply::call("file-read", serde_json::json!({"path": name})),
        _ => Reply::complete("done"),
    });
    let provider = Script::new().any_key().agent(looks.forever()).judge(met().forever()).start();
    let case = Case::of(sandbox, provider, "goal: x");
    let yaml = keyed(&case.provider.url(), &format!("api_key_file: {}", file.display()));
    case.sandbox.goal_without_model(&yaml);
    case.run().expect(Outcome::Met);
    let told = case.provider.agent_requests().last().expect("requests").text();
    assert!(!told.contains(KEY), "{told}");
    assert!(told.contains("outside of what the sandbox lets be read"), "{told}");
    if landlock(1) {
        assert_eq!((case.sandbox.read("copy"), case.sandbox.read("other")), (String::new(), "no secret".to_owned()));
    }
    // Where it works it reads everything, and could change what is run.
    let inside = case.sandbox.write("key", KEY);
    let count = case.provider.count(Lane::Agent);
    for key in [
        format!("api_key_file: {}", inside.display()),
        format!("api_key_command: [cat, {}]", inside.display()),
        format!("api_key_command: 'sh -x {}'", inside.display()),
    ] {
        let goal = case.sandbox.goal_without_model(&keyed(&case.provider.url(), &key));
        let finished = case.sandbox.run(["run", "--goal", goal.to_str().expect("UTF-8")]).expect_code(2);
        assert!(finished.stderr.contains("key"), "{}", finished.stderr);
    }
    assert_eq!(case.provider.count(Lane::Agent), count);
    case.provider.finish();
}
