//! A session's folder as a tape.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::error::CassetteError;
use super::records::{FORMAT, GoalText, Head, Source};
use super::tape::{Assembly, Blobs, Outputs, Tape};
use crate::session::{Fact, Frozen, Header, Line, RunStart, Session, read_wires};

/// What an endpoint is made from; anything else of it (URL, headers, keys) stays out of the head.
const ENDPOINT_FIELDS: [&str; 8] =
    ["provider", "model", "wire", "local", "window_tokens", "max_output_tokens", "reasoning_effort", "price"];

/// Reads a session's folder.
pub(super) fn gather(dir: &Path) -> Result<Tape, CassetteError> {
    let (header, facts) = Session::read(dir)?;
    let unpackable = |reason: String| CassetteError::Unpackable { session: header.id.clone(), reason };
    let mut assembly = Assembly::default();
    for line in &facts {
        assembly.fact(&line.fact).map_err(unpackable)?;
    }
    read_wires(dir, &facts, |line| assembly.wire(line).map_err(unpackable))??;
    let lanes = assembly.finish().map_err(unpackable)?;
    let frozen = facts.iter().find_map(|line| match &line.fact {
        Fact::Frozen(frozen) => Some(frozen),
        _ => None,
    });
    let Some(frozen) = frozen else { return Err(CassetteError::Nothing(header.id)) };
    let spool = Outputs::Folder(dir.join("spool"));
    let blobs = Blobs::Folder(dir.join("base"));
    let mut head = head(&header, frozen, &facts);
    head.parts = vec!["facts".to_owned(), "wire".to_owned()];
    Ok(Tape { head, facts, lanes, spool, base: None, blobs, end: None })
}

fn head(header: &Header, frozen: &Frozen, facts: &[Line]) -> Head {
    let lane = |endpoint: &Value| -> Map<String, Value> {
        let field = |name: &&str| Some(((*name).to_owned(), endpoint.get(*name)?.clone()));
        ENDPOINT_FIELDS.iter().filter_map(field).collect()
    };
    let lanes: BTreeMap<_, _> =
        frozen.endpoints.iter().map(|(name, endpoint)| (name.clone(), lane(endpoint))).collect();
    let server = frozen.endpoints.get("agent").map_or("an unknown server", server_kind);
    let first = facts.iter().find_map(|line| match &line.fact {
        Fact::Run(run) => Some(run),
        _ => None,
    });
    Head {
        format: FORMAT.to_owned(),
        spettro: env!("CARGO_PKG_VERSION").to_owned(),
        goal: GoalText { name: frozen.goal_name.clone(), text: frozen.goal.clone() },
        lanes,
        parts: Vec::new(),
        provenance: format!("recorded from {} against {server}", header.id),
        source: Some(source(header, first.map(|run| &**run))),
    }
}

fn source(header: &Header, first: Option<&RunStart>) -> Source {
    Source {
        session: header.id.clone(),
        workspace: header.workspace.clone(),
        clock_start: header.created.clone(),
        id_seed: None,
        redacted: Vec::new(),
        git_commit: first.and_then(|run| run.git_base.clone()),
    }
}

/// What kind of server gave the replies, without its address.
fn server_kind(endpoint: &Value) -> &'static str {
    let is = |name: &str| endpoint.get(name).and_then(Value::as_bool).unwrap_or(false);
    match (endpoint.get("cassette").is_some_and(|cassette| !cassette.is_null()), is("local"), is("own")) {
        (true, ..) => "another cassette",
        (_, true, _) => "a local server",
        (_, _, true) => "the provider's own server",
        _ => "a server other than the provider's own",
    }
}
