//! `spool_max`, and ids over several runs.

use spettro::event::Outcome;

use super::support::{last_result, notices, parts, read_page, spooled};
use crate::goal::support::{Case, met, unmet};
use crate::provider::{Reply, Script};

fn print(letter: &str) -> Reply {
    Reply::bash(&format!("head -c 20000 /dev/zero | tr '\\0' {letter}"))
}

#[test]
fn the_oldest_outputs_go_first_and_tool_output_says_so() {
    let script = Script::new()
        .one_session()
        .agent(print("a"))
        .agent(print("b"))
        .agent(print("c"))
        .agent(read_page("spool:1", 0, 100))
        .agent(read_page("spool:3", 0, 100))
        .agent(Reply::complete("done"))
        .judge(unmet("no"))
        .agent(print("d"))
        .agent(read_page("spool:2", 0, 100))
        .agent(read_page("spool:4", 0, 100))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nspool_max: 50KB\nlimits: {iterations: 1}\n");
    let ended = case.run().expect(Outcome::Unmet);
    let requests = case.provider.agent_requests();
    let gone = last_result(&requests[4]);
    assert!(gone.contains("`spool:1` is no longer kept: the oldest outputs were removed"), "{gone}");
    assert_eq!(parts(&last_result(&requests[5])).0, 20_000);
    let told = notices(&ended, "spool_dropped");
    assert!(told.len() == 1 && told[0].contains("50000 bytes (`spool_max`)"), "{told:?}");
    let there: Vec<(u64, bool)> = spooled(&ended).iter().map(|(id, body)| (*id, body.is_some())).collect();
    assert_eq!(there, [(1, false), (2, true), (3, true)]);

    // What the first run left counts, and no number is given twice.
    let ended = case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Met);
    let requests = case.provider.agent_requests();
    let gone = last_result(&requests[8]);
    assert!(gone.contains("`spool:2` is no longer kept"), "{gone}");
    let page = last_result(&requests[9]);
    assert_eq!(parts(&page), (20_000, 100, true, "d".repeat(100).as_str()));
    let there: Vec<(u64, bool)> = spooled(&ended).iter().map(|(id, body)| (*id, body.is_some())).collect();
    assert_eq!(there, [(1, false), (2, false), (3, true), (4, true)]);
    case.provider.finish();
}

#[test]
fn a_resumed_session_reads_what_it_was_given_before() {
    let script = Script::new()
        .one_session()
        .agent(print("a"))
        .agent(Reply::complete("done"))
        .judge(unmet("no"))
        .agent(read_page("spool:1", 19_990, 100))
        .agent(print("b"))
        .agent(Reply::complete("done"))
        .judge(met());
    let case = Case::new(script, "goal: x\nlimits: {iterations: 1}\n");
    let ended = case.run().expect(Outcome::Unmet);
    let ended = case.resume(&ended, &["--max-iterations", "2"]).expect(Outcome::Met);
    let page = last_result(&case.provider.agent_requests()[3]);
    assert_eq!(page, format!("output=spool:1 size=20000 next_offset=20000 (end of output)\n{}", "a".repeat(10)));
    assert_eq!(spooled(&ended).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2]);
    case.provider.finish();
}
