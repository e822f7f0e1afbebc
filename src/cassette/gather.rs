//! A session's folder as a tape.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::error::CassetteError;
use super::records::{FORMAT, GoalText, Head, Source};
use super::spool_ids;
use super::tape::{Assembly, Outputs, Tape, inside};
use crate::session::{Block, Fact, Frozen, Header, Line, Message, Session, read_wires};
use crate::workspace::{BASE_FILE, Base, is_ignore_file};

/// What an endpoint is made from; anything else of it (URL, headers, keys) stays out of the head.
const ENDPOINT_FIELDS: [&str; 8] =
    ["provider", "model", "wire", "local", "window_tokens", "max_output_tokens", "reasoning_effort", "price"];

/// Reads a session's folder; with `whole` all contents of its base, else those that its own tools looked at.
pub(super) fn gather(dir: &Path, whole: bool) -> Result<Tape, CassetteError> {
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
    let Some(frozen) = frozen else { return Err(CassetteError::Empty(header.id)) };
    let spool = Outputs::Folder(dir.join("spool"));
    let mut head = head(&header, frozen, &facts);
    let kept = match Base::read(&dir.join(BASE_FILE)) {
        Ok(kept) => Some(kept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(CassetteError::io("read", &dir.join(BASE_FILE))(error)),
    };
    let (mut base, mut blobs) = kept.unzip();
    if let (Some(base), Some(blobs)) = (&mut base, &mut blobs) {
        base.files.iter().try_for_each(|file| inside(&file.path)).map_err(unpackable)?;
        base.git_commit = head.source.as_ref().and_then(|source| source.git_commit.clone());
        let touched = touched(base, &facts);
        blobs.retain(|sha256, _| whole || touched.contains(sha256));
    }
    let has = [("facts", true), ("wire", true), ("spool", !spool_ids(&facts).is_empty()), ("base", base.is_some())];
    head.parts = has.into_iter().filter(|(_, has)| *has).map(|(part, _)| part.to_owned()).collect();
    Ok(Tape { head, facts, lanes, spool, base, blobs: blobs.unwrap_or_default(), end: None })
}

/// The digests of the contents that spettro's own tools read, searched or changed.
fn touched(base: &Base, facts: &[Line]) -> BTreeSet<String> {
    let mut root = PathBuf::new();
    let (mut files, mut folders) = (BTreeSet::new(), Vec::new());
    let mut arguments = BTreeMap::new();
    for line in facts {
        match &line.fact {
            Fact::Run(run) => root = PathBuf::from(&run.workspace),
            Fact::Message(Message::Assistant { blocks, .. }) => {
                for block in blocks {
                    if let Block::Call { id, arguments: given, .. } = block {
                        arguments.insert(id.clone(), given.clone());
                    }
                }
            }
            Fact::Tool(done) => {
                let relative = |path: &str| {
                    let path = Path::new(path);
                    path.strip_prefix(&root).unwrap_or(path).to_owned()
                };
                files.extend(done.marks.iter().map(|mark| relative(&mark.path)));
                files.extend(done.changed.iter().map(|path| relative(path)));
                if done.tool == "grep" {
                    let given =
                        arguments.get(&done.call_id).and_then(|given| serde_json::from_str::<Value>(given).ok());
                    let path = given.as_ref().and_then(|given| given.get("path")?.as_str()).unwrap_or(".");
                    folders.push(
                        relative(path)
                            .components()
                            .filter(|part| !matches!(part, Component::CurDir))
                            .collect::<PathBuf>(),
                    );
                }
            }
            _ => {}
        }
    }
    // They say what counts in a tree.
    let is_touched = |path: &Path| {
        is_ignore_file(path) || files.contains(path) || folders.iter().any(|folder| path.starts_with(folder))
    };
    base.files.iter().filter(|file| is_touched(&file.path)).map(|file| file.sha256.clone()).collect()
}

fn head(header: &Header, frozen: &Frozen, facts: &[Line]) -> Head {
    let lane = |endpoint: &Value| -> Map<String, Value> {
        let field = |name: &&str| Some(((*name).to_owned(), endpoint.get(*name)?.clone()));
        ENDPOINT_FIELDS.iter().filter_map(field).collect()
    };
    let lanes: BTreeMap<_, _> =
        frozen.endpoints.iter().map(|(name, endpoint)| (name.clone(), lane(endpoint))).collect();
    let server = frozen.endpoints.get("agent").map_or("an unknown server", server_kind);
    Head {
        format: FORMAT.to_owned(),
        spettro: env!("CARGO_PKG_VERSION").to_owned(),
        goal: GoalText { name: frozen.goal_name.clone(), text: frozen.goal.clone() },
        lanes,
        parts: Vec::new(),
        provenance: format!("recorded from {} against {server}", header.id),
        source: Some(source(header, facts)),
    }
}

fn source(header: &Header, facts: &[Line]) -> Source {
    let pins = Pins::of(facts);
    Source {
        session: header.id.clone(),
        workspace: header.workspace.clone(),
        clock_start: header.created.clone(),
        id_seed: pins.id_seed,
        redacted: pins.redacted,
        git_commit: pins.git_commit,
    }
}

/// What of a [`Source`] follows from the facts.
#[derive(PartialEq)]
pub(super) struct Pins {
    id_seed: Option<String>,
    redacted: Vec<String>,
    git_commit: Option<String>,
}

impl Pins {
    pub fn of(facts: &[Line]) -> Pins {
        let runs = || {
            facts.iter().filter_map(|line| match &line.fact {
                Fact::Run(run) => Some(run),
                _ => None,
            })
        };
        let first = runs().next();
        let redacted: BTreeSet<&String> = runs().flat_map(|run| &run.redacted).collect();
        Pins {
            id_seed: first.and_then(|run| run.id_seed.clone()),
            redacted: redacted.into_iter().cloned().collect(),
            git_commit: first.and_then(|run| run.git_base.clone()),
        }
    }

    /// As a head has them.
    pub fn told(source: &Source) -> Pins {
        let Source { id_seed, redacted, git_commit, .. } = source.clone();
        Pins { id_seed, redacted, git_commit }
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
