//! Files that the operator names and spettro writes outside of the sandbox, at the end: nobody leads them elsewhere.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::goal::support::{Case, met};
use crate::provider::{Reply, Script};
use crate::sandbox::{Finished, PATIENCE, Sandbox};

/// What a shell would run if it stood in a file that it reads.
const LAST_WORDS: &str = "$(touch ran)";
const MINE: &str = "# mine\n";

/// A home with a file that a shell runs, and a folder of keys.
fn home() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(sandbox.home().join(".bashrc"), MINE);
    std::fs::create_dir(sandbox.home().join(".ssh")).expect("a folder");
    sandbox
}

/// An agent that runs one command.
fn agent(sandbox: Sandbox, command: &str) -> Case {
    let script = Script::new().agent(Reply::bash(command)).agent(Reply::text(LAST_WORDS)).judge(met());
    Case::within(sandbox, script, "goal: x")
}

#[track_caller]
fn run(case: &Case, flags: &[&str]) -> Finished {
    case.sandbox.run([&["run", "--goal", case.goal.to_str().expect("a path")], flags].concat())
}

#[track_caller]
fn untouched(sandbox: &Sandbox) {
    assert_eq!(sandbox.read(sandbox.home().join(".bashrc")), MINE);
    assert!(!sandbox.home().join(".bashrc").symlink_metadata().expect("it stands").is_symlink());
    let keys = std::fs::read_dir(sandbox.home().join(".ssh")).expect("it stands");
    assert_eq!(keys.count(), 0);
}

/// The whole result stands in a file of its own.
#[track_caller]
fn written(sandbox: &Sandbox, file: &str) {
    let path = sandbox.workspace().join(file);
    assert!(path.symlink_metadata().expect("it is there").is_file(), "{file}");
    let result: Value = serde_json::from_str(&sandbox.read(&path)).expect("a result");
    assert_eq!((&result["state"], &result["outcome"]), (&"finished".into(), &"met".into()), "{result}");
}

#[test]
fn what_the_agent_puts_in_the_results_place_is_replaced() {
    for (command, stands) in [
        ("ln -sf ~/.bashrc result.json", false),
        ("ln -sf ~/.bashrc result.json", true),
        ("rm -f result.json; mkfifo result.json", true),
        ("mkfifo result.json", false),
        ("ln -s ~/.bashrc one; ln -sf one result.json", true),
    ] {
        let sandbox = home();
        if stands {
            sandbox.write("result.json", "{\"state\": \"finished\", \"outcome\": \"met\"}\n");
        }
        let case = agent(sandbox, command);
        run(&case, &["-o", "result.json"]).expect_code(0);
        untouched(&case.sandbox);
        written(&case.sandbox, "result.json");
        assert!(case.sandbox.read("result.json").contains(LAST_WORDS));
        case.provider.finish();
    }
}

#[test]
fn a_folder_that_becomes_a_link_is_not_followed() {
    for flags in [["-o", "out/authorized_keys"], ["--cassette", "out/authorized_keys"]] {
        let sandbox = home();
        std::fs::create_dir(sandbox.workspace().join("out")).expect("a folder");
        let case = agent(sandbox, "rm -r out; ln -s ~/.ssh out");
        let finished = run(&case, &flags).expect_code(23);
        assert!(finished.stderr.contains("stands on its way"), "{flags:?}: {}", finished.stderr);
        untouched(&case.sandbox);
        case.provider.finish();
    }
}

#[test]
fn a_link_of_the_repository_decides_nothing() {
    let case = agent(home(), "true");
    let (sandbox, goal) = (&case.sandbox, case.goal.to_str().expect("a path"));
    sandbox.sh("ln -s ../home/.bashrc result.json; ln -s ../home/.ssh out; ln -s out deep; ln -s .git/config config");
    sandbox.git_init();
    symlink(sandbox.workspace().join("result.json"), sandbox.root().join("twice")).expect("a link");
    for file in ["result.json", "out/result.json", "deep/authorized_keys", "../twice", "config"] {
        let finished = sandbox.run(["run", "--goal", goal, "--json", "-o", file]).expect_code(2);
        let message = finished.result()["error"]["message"].as_str().expect("a message").to_owned();
        assert!(message.contains(file) && message.contains("leads by a link in"), "{message}");
        assert_eq!(finished.result()["outcome"], "usage");
        untouched(sandbox);
    }
    let finished = sandbox.run(["run", "--goal", goal, "--cassette", "out/authorized_keys"]).expect_code(2);
    assert!(finished.stderr.contains("leads by a link in"), "{}", finished.stderr);
    // Not even the error of a run that never began, which can quote the repository.
    sandbox.write("bad.yaml", format!("version: 1\nmodel: '{LAST_WORDS}'\n"));
    sandbox.run(["run", "--goal", "bad.yaml", "-o", "result.json"]).expect_code(2);
    sandbox.run(["run", "--no-such-flag", "-o", "result.json"]).expect_code(2);
    untouched(sandbox);
    assert!(sandbox.sh("cat .git/config").contains("[core]"));
    assert_eq!((case.provider.requests().len(), sandbox.session_dirs().len()), (0, 0));
}

#[test]
fn a_pipe_without_a_reader_is_told_and_holds_nothing_up() {
    let sandbox = home();
    sandbox.sh("mkfifo pipe");
    let case = agent(sandbox, "true");
    let finished = run(&case, &["-o", "pipe"]).expect_code(23);
    assert!(finished.stderr.contains("nobody reads"), "{}", finished.stderr);
    case.provider.finish();
}

/// A run by a shell in which `$SPETTRO` is the binary, and `$GOAL` the goal.
#[track_caller]
fn shell(case: &Case, script: &str) -> Finished {
    let mut command = case.sandbox.command("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    command.env("SPETTRO", env!("CARGO_BIN_EXE_spettro")).env("GOAL", &case.goal);
    case.sandbox.start(command).wait(PATIENCE)
}

#[test]
fn the_operators_own_places_stay() {
    let place = |command: &str| {
        let sandbox = home();
        sandbox.sh(
            "mkdir ../elsewhere inner; ln -s elsewhere ../reports; ln -s elsewhere/it.json ../it.json; ln -s inner in",
        );
        agent(sandbox, command)
    };
    for (file, real) in [
        ("result.json", "result.json"),
        ("./inner/../new.json", "new.json"),
        ("in/result.json", "inner/result.json"),
        ("../plain.json", "../plain.json"),
        ("../reports/r.json", "../elsewhere/r.json"),
        ("../it.json", "../elsewhere/it.json"),
    ] {
        let case = place("true");
        run(&case, &["-o", file]).expect_code(0);
        written(&case.sandbox, real);
        for link in ["../reports", "../it.json"] {
            let link = case.sandbox.workspace().join(link);
            assert!(link.symlink_metadata().expect("it stands").is_symlink(), "{file}");
        }
        case.provider.finish();
    }
    // A folder that a build removes and makes again.
    let case = place("rm -r inner; mkdir inner");
    let cassette = case.sandbox.root().join("reports/run.cassette.zst");
    run(&case, &["-o", "inner/result.json", "--cassette", cassette.to_str().expect("a path")]).expect_code(0);
    written(&case.sandbox, "inner/result.json");
    assert!(case.sandbox.root().join("elsewhere/run.cassette.zst").is_file());
    case.provider.finish();
}

#[test]
fn pipes_and_outputs_of_the_operators_get_all_of_it() {
    let whole = |text: &str| {
        let begins = text.find('{').unwrap_or_else(|| panic!("no object: {text}"));
        let mut values = serde_json::Deserializer::from_str(&text[begins..]).into_iter::<Value>();
        let result = values.next().expect("an object").expect("JSON");
        assert_eq!(result["outcome"], "met", "{text}");
    };
    for (script, file) in [
        ("\"$SPETTRO\" run -q --goal \"$GOAL\" -o /dev/stdout | cat > got", "got"),
        ("\"$SPETTRO\" run -q --goal \"$GOAL\" -o /dev/stdout > ../got", "../got"),
        ("\"$SPETTRO\" run -q --goal \"$GOAL\" -o /dev/fd/3 3> ../got", "../got"),
        ("mkfifo ../pipe; cat ../pipe > ../got & \"$SPETTRO\" run -q --goal \"$GOAL\" -o ../pipe; wait", "../got"),
        ("\"$SPETTRO\" run -q --goal \"$GOAL\" -o >(cat > ../got); wait $!", "../got"),
    ] {
        let case = agent(home(), "true");
        let finished = shell(&case, script).expect_code(0);
        let got = case.sandbox.read(file);
        whole(&got);
        if script.contains("/dev/stdout") {
            assert!(got.contains("met after 1 iteration"), "and the summary beside it: {got}");
        } else {
            assert!(finished.stdout.contains("met after 1 iteration"), "{}", finished.stdout);
        }
        case.provider.finish();
    }
}
