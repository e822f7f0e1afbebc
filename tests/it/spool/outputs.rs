//! Twelve megabytes, NUL bytes, invalid UTF-8: bounded, escaped, and all there.

use std::fs;

use serde_json::json;
use spettro::event::Outcome;

use super::support::{all_on_disk, last_result, offset_in_footer, page, parts, read_page, results};
use crate::goal::support::{Case, met};
use crate::provider::{Gate, Reply, Request, Script, respond_with};
use crate::sandbox::{PATIENCE, Sandbox};

/// What is kept of each end of a flood.
const KEPT: usize = 2 << 20;

#[test]
fn twelve_megabytes_keep_both_ends_in_bounded_memory_and_page_to_their_end() {
    // 120,000 lines of 100 bytes.
    let command = "seq -f '%0.f' 1 120000 | awk '{printf \"%099d\\n\", $1}'";
    let line = |n: usize| format!("{n:0>99}\n");
    let all: String = (1..=120_000).map(line).collect();
    assert_eq!(all.len(), 12_000_000);
    let kept = format!(
        "{}\n[{} bytes of output were not kept: only the first and last 2 MiB are]\n{}",
        &all[..KEPT],
        "7,805,696",
        &all[all.len() - KEPT..]
    );
    assert_eq!(12_000_000 - 2 * KEPT, 7_805_696);

    // Six replies of at most 32 pages each.
    const LIMIT: usize = 25_000;
    let offsets: Vec<usize> = (0..kept.len()).step_by(LIMIT).collect();
    let gate = Gate::new();
    let mut script = Script::new().agent(Reply::bash(command));
    for (index, offsets) in offsets.chunks(32).enumerate() {
        let calls = offsets.iter().fold(Reply::empty(), |reply, offset| {
            reply.and_call("tool-output", page("spool:1", *offset as u64, LIMIT as u64))
        });
        script = script.agent(if index == 0 { calls.held(&gate) } else { calls });
    }
    let script = script.agent(Reply::complete("done")).judge(met());
    let provider = script.start();
    let sandbox = Sandbox::new();
    let model = sandbox.model_yaml(&provider, "test/model-1").replace("200000", "100000000");
    let case = Case::of(sandbox, provider, &format!("goal: x\n{model}limits: {{cost: unlimited}}\n"));

    let started = case.start(&[]);
    gate.wait_until_held(PATIENCE);
    let status = fs::read_to_string(format!("/proc/{}/status", started.running.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    // Twice the 4 MiB that are kept, what the copy of an unoptimized build takes, and the runner itself.
    assert!(peak_kb < 64 << 10, "{peak_kb} kB for 4 MiB of output");
    gate.release();
    let ended = started.end().expect(Outcome::Met);

    let requests = case.provider.agent_requests();
    let text = last_result(&requests[1]);
    assert!(text.starts_with(&line(1)) && text.contains(&line(120_000)), "head and tail");
    assert!(text.chars().count() < 31_000);
    assert!(text.ends_with("[whole output: spool/1 in the session's folder]"), "{}", &text[text.len() - 200..]);
    let offset = offset_in_footer(&text) as usize;
    assert_eq!(text[..offset], kept[..offset], "what was shown before the offset");
    assert_eq!(&text[offset..offset + 6], "[...]\n");

    let pages = results(&case.provider);
    let pages: Vec<_> = pages.iter().skip(1).map(|result| parts(&result.text)).collect();
    assert_eq!(pages.len(), offsets.len());
    for (index, (size, next, more, _)) in pages.iter().enumerate() {
        let end = ((index + 1) * LIMIT).min(kept.len());
        assert_eq!((*size, *next, *more), (kept.len() as u64, end as u64, end < kept.len()));
    }
    let together: String = pages.iter().map(|page| page.3).collect();
    assert!(together == kept, "all pages together are what was captured");
    let file = fs::read(ended.dir.as_ref().expect("a session").join("spool/1")).expect("the file it names");
    assert!(file == kept.as_bytes());
    let fact = &ended.facts("tool")[0];
    assert_eq!((&fact["output_bytes"], &fact["spool"]), (&json!(12_000_000), &json!(1)));
    all_on_disk(&ended);
    case.provider.finish();
}

#[test]
fn nul_bytes_and_what_is_no_text_are_escaped_for_the_model_and_kept_as_they_were() {
    // As bash writes it, as it is kept, and as it is shown.
    let printed = r"\000\001\377 \303( \033[31mred\033[0m\t\344\270\255 end\r\n";
    let raw = b"\x00\x01\xff \xc3( \x1b[31mred\x1b[0m\t\xe4\xb8\xad end\r\n";
    let shown = "\\x00\\x01\\xff \\xc3( red\t中 end\n";
    let command = format!("for i in {{1..3000}}; do printf '{printed}'; done");
    let next = respond_with(|request: &Request| {
        let text = last_result(request);
        if !text.starts_with("output=") {
            return read_page("spool:1", 0, 7_001);
        }
        match parts(&text) {
            (_, next, true, _) => read_page("spool:1", next, 7_001),
            _ => Reply::complete("done"),
        }
    });
    let script = Script::new().agent(Reply::bash(&command)).agent(next.forever()).judge(met());
    let case = Case::new(script, "goal: x\nlimits: {cost: unlimited}\n");
    let ended = case.run().expect(Outcome::Met);

    let results = results(&case.provider);
    let all = shown.repeat(3_000);
    let text = &results[0].text;
    let (head, rest) = text.split_once("[...]\n").expect("a seam");
    assert!(all.starts_with(head) && head.ends_with('\n'), "cut at a line end");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
    let tail = &rest[..rest.find("[truncated: ").expect("a footer")];
    assert!(all.ends_with(tail));
    let lines_gone = 3_000 - (head.len() + tail.len()) / shown.len();
    let footer = format!("[truncated: {},{:03} of 3,000 lines omitted; ", lines_gone / 1_000, lines_gone % 1_000);
    assert!(rest.contains(&footer), "{footer} in {}", &rest[rest.len() - 250..]);
    // The offset counts bytes of the file, not of the text.
    let offset = offset_in_footer(text);
    assert_eq!(offset as usize, head.len() / shown.len() * raw.len());

    let pages: Vec<_> = results[1..].iter().map(|result| parts(&result.text)).collect();
    assert!(pages.len() > 12 && pages.iter().all(|page| page.0 == 3_000 * raw.len() as u64));
    let together: String = pages.iter().map(|page| page.3).collect();
    assert!(together == all, "all pages together are what was captured");
    assert_eq!(fs::read(ended.dir.as_ref().expect("a session").join("spool/1")).expect("a file"), raw.repeat(3_000));
    all_on_disk(&ended);
    case.provider.finish();
}

#[test]
fn every_result_over_two_thousand_bytes_has_its_file_when_the_run_ends() {
    let sandbox = Sandbox::new();
    sandbox.write("long.txt", "word ".repeat(11_000));
    let print = |bytes: usize| json!({"command": format!("head -c {bytes} /dev/zero | tr '\\0' x")});
    let reply = Reply::empty()
        .and_call("bash", print(2_000))
        .and_call("bash", print(2_001))
        .and_call("grep", json!({"pattern": "word", "path": "long.txt"}))
        .and_call("bash", print(100_000))
        .and_call("file-read", json!({"path": "long.txt"}));
    let script = Script::new().agent(reply).agent(Reply::complete("done")).judge(met());
    let case = Case::within(sandbox, script, "goal: x\n");
    let ended = case.run().expect(Outcome::Met);
    let ids: Vec<Option<u64>> = ended.facts("tool").iter().map(|fact| fact["spool"].as_u64()).collect();
    assert_eq!((ids[0], ids[1], ids.last()), (None, Some(1), Some(&None)), "{ids:?}");
    all_on_disk(&ended);
    let results = case.provider.agent_requests()[1].tool_results();
    let named: Vec<bool> = results.iter().map(|result| result.text.contains("whole output: spool/")).collect();
    assert_eq!(named, [false, false, false, true, false], "only a cut command names its file");
    case.provider.finish();
}

#[test]
fn results_that_are_too_large_only_together_name_their_files_too() {
    let print = |letter: &str| json!({"command": format!("head -c 20000 /dev/zero | tr '\\0' {letter} | fold -w 60")});
    let reply = ["a", "b", "c"].into_iter().fold(Reply::empty(), |reply, letter| reply.and_call("bash", print(letter)));
    let provider = Script::new().agent(reply).agent(Reply::complete("done")).judge(met()).start();
    let sandbox = Sandbox::new();
    // Each takes less than an eighth of the window, all together more than a quarter.
    let model = sandbox.model_yaml(&provider, "test/model-1").replace("200000", "64000");
    let case = Case::of(sandbox, provider, &format!("goal: x\n{model}"));
    let ended = case.run().expect(Outcome::Met);
    let results = case.provider.agent_requests()[1].tool_results();
    assert_eq!(ended.facts("recut").len(), 3, "{results:?}");
    for (result, fact) in results.iter().zip(ended.facts("tool")) {
        let file = format!("[whole output: spool/{} in the session's folder]", fact["spool"]);
        assert!(result.text.ends_with(&file), "{file}: {}", &result.text[result.text.len() - 200..]);
    }
    all_on_disk(&ended);
    case.provider.finish();
}
