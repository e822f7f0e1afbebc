//! stdin, stdout and stderr: closed, dead, silent, or a terminal.

use std::process::Stdio;

use super::{assert_met, goal, shell};
use crate::sandbox::{PATIENCE, Sandbox};

#[test]
fn a_reader_that_leaves_early_ends_no_run() {
    for format in ["text", "json", "jsonl"] {
        let sandbox = Sandbox::new();
        let provider = goal(&sandbox);
        let script = format!(
            "\"$SPETTRO\" run --goal ../goal.yaml --output-format {format} 2>../err | head -1 >../first
             echo \"${{PIPESTATUS[0]}}\" >../code"
        );
        shell(&sandbox, &script).expect_code(0);
        assert_eq!(sandbox.read("../code"), "0\n", "{format}: {}", sandbox.read("../err"));
        assert_eq!(sandbox.read("../first").lines().count(), 1);
        assert!(!sandbox.read("../err").contains("panicked"));
        assert_met(&sandbox);
        provider.finish();
    }
}

#[test]
fn a_reader_that_is_gone_from_the_start_ends_no_run() {
    for (name, redirect) in [("stdout", "> >(exec true)"), ("stderr", "2> >(exec true)"), ("both", "&> >(exec true)")] {
        let sandbox = Sandbox::new();
        let provider = goal(&sandbox);
        let script = format!("\"$SPETTRO\" run --goal ../goal.yaml --output-format jsonl {redirect}; echo $? >../code");
        shell(&sandbox, &script).expect_code(0);
        assert_eq!(sandbox.read("../code"), "0\n", "{name}");
        assert_met(&sandbox);
        provider.finish();
    }
}

#[test]
fn closed_streams_end_no_run_and_spoil_no_file() {
    for redirect in [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"] {
        for format in ["text", "jsonl"] {
            let sandbox = Sandbox::new();
            let provider = goal(&sandbox);
            let script = format!(
                "\"$SPETTRO\" run --goal ../goal.yaml --output-format {format} -o ../own.json {redirect}
                 echo $? >../code"
            );
            shell(&sandbox, &script);
            assert_eq!(sandbox.read("../code"), "0\n", "{redirect} {format}");
            assert_met(&sandbox);
            let own: serde_json::Value = serde_json::from_str(&sandbox.read("../own.json")).expect("a result");
            assert_eq!(own["outcome"], "met", "{redirect}");
            // What would have gone to a closed stream is in no file that took its number.
            let dir = sandbox.session_dir();
            for file in ["session.jsonl", "wire.jsonl", "events.jsonl"] {
                let lines = crate::sandbox::json_lines(&dir.join(file));
                assert!(!lines.is_empty(), "{redirect}: {file}");
            }
            provider.finish();
        }
    }
}

#[test]
fn a_full_device_as_stdout_ends_no_run() {
    let sandbox = Sandbox::new();
    let provider = goal(&sandbox);
    let script = "\"$SPETTRO\" run --goal ../goal.yaml --output-format jsonl >/dev/full; echo $? >../code";
    let finished = shell(&sandbox, script);
    assert_eq!(sandbox.read("../code"), "0\n", "{}", finished.stderr);
    assert_eq!(finished.stderr.matches("warning: write stdout: No space left").count(), 1, "{}", finished.stderr);
    assert_met(&sandbox);
    provider.finish();
}

#[test]
fn what_asks_for_its_output_fails_when_that_cannot_be_written() {
    let sandbox = Sandbox::new();
    let provider = crate::provider::Script::new().start();
    sandbox.goal(&provider, "goal: x\nchecks: ['true']\n");
    for args in [
        "run --goal ../goal.yaml --dry-run",
        "run --goal ../goal.yaml --dry-run --json",
        "schema goal",
        "checks ../goal.yaml",
    ] {
        let finished = shell(&sandbox, &format!("\"$SPETTRO\" {args} >/dev/full")).expect_code(23);
        assert!(finished.stderr.contains("error: write stdout: No space left"), "{args}: {}", finished.stderr);
    }
    provider.finish();
}

#[test]
fn a_reader_that_left_changes_no_exit_code() {
    let sandbox = Sandbox::new();
    let provider = crate::provider::Script::new().start();
    sandbox.goal(&provider, "goal: x\nchecks: ['false']\n");
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/cassettes");
    let diff = format!("cassette diff {recorded}/refusal-and-repair.cassette.zst {recorded}/edits.cassette.zst");
    for (args, code) in [
        ("checks ../goal.yaml", 10),
        (diff.as_str(), 30),
        ("help exit-codes", 0),
        ("sessions show none", 2),
        ("run --goal ../goal.yaml --dry-run", 0),
    ] {
        // Nobody has the other end of what is stdout here.
        let script = format!("rm -f ../p; mkfifo ../p; exec 8<>../p 7>../p 8<&-; \"$SPETTRO\" {args} >&7 7>&-");
        let finished = shell(&sandbox, &script);
        assert_eq!(finished.code, Some(code), "{args}: {}", finished.stderr);
        assert!(!finished.stderr.contains("roken pipe"), "{args}: {}", finished.stderr);
    }
    provider.finish();
}

#[test]
fn a_stdin_that_stays_open_and_silent_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let provider = goal(&sandbox);
    let mut command = sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--goal", "../goal.yaml"]).stdin(Stdio::piped());
    // The pipe's other end stays open as long as this value lives.
    let running = sandbox.start(command);
    running.wait(PATIENCE).expect_code(0);
    assert_met(&sandbox);
    provider.finish();
}

#[test]
fn a_command_cannot_read_what_the_runner_has_as_stdin() {
    let sandbox = Sandbox::new();
    let provider = crate::provider::Script::new()
        .agent(crate::provider::Reply::bash("cat; echo end of input"))
        .agent(crate::provider::Reply::text("done"))
        .judge(crate::provider::Reply::verdict("met", "ok", ""))
        .start();
    sandbox.goal(&provider, "goal: Read.\n");
    let mut command = sandbox.command(env!("CARGO_BIN_EXE_spettro"));
    command.args(["run", "--goal", "../goal.yaml"]).stdin(Stdio::piped());
    sandbox.start(command).wait(PATIENCE).expect_code(0);
    assert_eq!(provider.agent_requests()[1].tool_results()[0].text.trim(), "end of input");
    provider.finish();
}

#[test]
fn dumb_terminals_and_pipelines_get_plain_lines() {
    for (name, value) in [("TERM", "dumb"), ("CI", "1"), ("NO_COLOR", "1"), ("TERM", ""), ("GITHUB_ACTIONS", "true")] {
        let sandbox = Sandbox::new();
        sandbox.set(name, value);
        let provider = goal(&sandbox);
        let finished = sandbox.run(["run", "--goal", "../goal.yaml"]).expect_code(0);
        assert!(!finished.stderr.contains('\u{1b}') && !finished.stdout.contains('\u{1b}'), "{}", finished.stderr);
        assert!(!finished.stderr.contains('\r'), "{name}: {}", finished.stderr);
        assert!(finished.stderr.contains("bash \"echo made > made.txt\" ok"), "{name}: {}", finished.stderr);
        assert!(finished.stderr.contains("goal met: the file is there"), "{name}: {}", finished.stderr);
        assert_met(&sandbox);
        provider.finish();
    }
}

/// Runs the binary on a pseudo-terminal and gives what a person would have seen, with the control sequences.
fn on_a_terminal(sandbox: &Sandbox) -> Option<String> {
    if !std::path::Path::new("/usr/bin/script").exists() {
        super::skipped("there is no `script` to make a terminal with");
        return None;
    }
    let script = "script -qefc 'stty rows 40 cols 120; exec \"$SPETTRO\" run --goal ../goal.yaml' ../typescript";
    let finished = shell(sandbox, script).expect_code(0);
    Some(finished.stdout)
}

fn without_control_sequences(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().skip(1).find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain
}

#[test]
fn a_terminal_shows_bars_and_the_lines() {
    let sandbox = Sandbox::new();
    sandbox.set("TERM", "xterm-256color");
    let provider = goal(&sandbox);
    let Some(seen) = on_a_terminal(&sandbox) else { return };
    assert!(seen.contains("\u{1b}["), "{seen:?}");
    let plain = without_control_sequences(&seen);
    for words in ["iterations", "cost", "context", "echo made > made.txt", "goal met: the file is there"] {
        assert!(plain.contains(words), "{words}: {plain}\n{seen:?}");
    }
    assert_met(&sandbox);
    provider.finish();
}

#[test]
fn a_dumb_terminal_gets_no_bars() {
    let sandbox = Sandbox::new();
    sandbox.set("TERM", "dumb");
    let provider = goal(&sandbox);
    let Some(seen) = on_a_terminal(&sandbox) else { return };
    assert!(!seen.contains('\u{1b}'), "{seen:?}");
    assert!(seen.contains("goal met: the file is there"), "{seen}");
    provider.finish();
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_by_hangup() {
    use super::super::resume::support;
    let sandbox = Sandbox::new();
    sandbox.set("TERM", "xterm");
    let provider = crate::provider::Script::new().agent(crate::provider::Reply::bash(support::LASTING)).start();
    sandbox.goal(&provider, "goal: Last.\n");
    let script = "exec script -qefc 'echo $$ >../runner; exec \"$SPETTRO\" run --goal ../goal.yaml' ../typescript";
    let terminal = sandbox.start(super::shell_command(&sandbox, script));
    let path = sandbox.workspace().join("pids");
    support::eventually("the command has started", || support::pids(&path).len() >= 2);
    let children = support::pids(&path);
    let runner = support::pids(&sandbox.root().join("runner"));
    // The terminal's own process dies, and with it the terminal.
    terminal.kill();
    support::assert_dead(&runner);
    support::assert_dead(&children);
    let lines = sandbox.session_lines();
    assert_eq!(support::facts(&lines, "interrupted")[0]["reason"], "hangup");
    assert_eq!(support::facts(&lines, "end")[0]["outcome"], "hangup");
    provider.finish();
}
