//! What these tests ask of a request, a result and a session's spool.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::goal::support::Ended;
use crate::provider::{Provider, Reply, Request, ToolResult};

/// The text of the last tool result of a request.
#[track_caller]
pub fn last_result(request: &Request) -> String {
    request.tool_results().pop().expect("a tool result").text
}

/// All results that the agent was sent, each once.
pub fn results(provider: &Provider) -> Vec<ToolResult> {
    provider.agent_requests().iter().flat_map(|request| request.tool_results()).collect()
}

pub fn page(id: &str, offset: u64, limit: u64) -> Value {
    json!({"id": id, "offset": offset, "limit": limit})
}

pub fn read_page(id: &str, offset: u64, limit: u64) -> Reply {
    Reply::call("tool-output", page(id, offset, limit))
}

/// A page's `size`, `next_offset`, whether there is more, and its text.
#[track_caller]
pub fn parts(text: &str) -> (u64, u64, bool, &str) {
    let (header, chunk) = text.split_once('\n').unwrap_or((text, ""));
    let number = |name: &str| {
        let rest = header.split_once(name).unwrap_or_else(|| panic!("{name} in {header}")).1;
        rest.split(' ').next().and_then(|digits| digits.parse().ok()).expect("a number")
    };
    let more = header.ends_with("(more available)");
    assert!(more || header.ends_with("(end of output)"), "{header}");
    (number("size="), number("next_offset="), more, chunk)
}

/// The offset that the footer of a cut result names.
#[track_caller]
pub fn offset_in_footer(text: &str) -> u64 {
    let rest = text.rsplit_once("\"offset\":").unwrap_or_else(|| panic!("no footer: {text}")).1;
    rest[..rest.find('}').expect("a brace")].parse().expect("a number")
}

/// The only session's folder below a home; the path may be asked for while it is made.
#[track_caller]
pub fn session_in(home: &Path) -> PathBuf {
    let only = |dir: PathBuf| {
        let mut entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("list {}: {error}", dir.display()));
        entries.next().expect("one session").expect("an entry").path()
    };
    only(only(home.join(".spettro/sessions")))
}

/// The spool ids that the tool facts name, with what their files hold; `None` where there is no file.
#[track_caller]
pub fn spooled(ended: &Ended) -> Vec<(u64, Option<Vec<u8>>)> {
    let dir = ended.dir.as_ref().expect("a session").join("spool");
    let ids = ended.facts("tool").into_iter().filter_map(|fact| fact["spool"].as_u64());
    ids.map(|id| (id, fs::read(dir.join(id.to_string())).ok())).collect()
}

/// Every id that was given is the next one, and has its whole file at the end of the run.
#[track_caller]
pub fn all_on_disk(ended: &Ended) {
    let spooled = spooled(ended);
    let ids: Vec<u64> = spooled.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "in the order of the calls");
    for (id, body) in spooled {
        assert!(body.is_some_and(|body| body.len() > 2_000), "spool:{id} is on the disk");
    }
}

/// The notices of a session with this code.
#[track_caller]
pub fn notices(ended: &Ended, code: &str) -> Vec<String> {
    let facts = ended.facts("notice").into_iter().filter(|fact| fact["code"] == code);
    facts.map(|fact| fact["text"].as_str().expect("a text").to_owned()).collect()
}
