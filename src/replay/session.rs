//! All runs of a recorded session, one after another, in one scratch session.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::clock::FewVars;
use super::cursor::{Cursor, Stop, Tap};
use super::diff::diff;
use super::drive::{Again, Live};
use super::finding::{Aspect, Divergence, Guess, Standing};
use super::ground::{Ground, Tally};
use super::live::fill;
use super::part::Part;
use super::report::{ChangedPart, Report, compared};
use super::scratch::{Asked, Heads, Scratch};
use super::{Endpoints, Options, ReplayError, ToolMode};
use crate::cassette::{EventDigest, Tape, event_digest};
use crate::event::{Lane, Limits, Record};
use crate::goal::{Changed, Config, GoalSource, Lanes, Overrides, Setting, Source, changed, load};
use crate::model::{Endpoint, KeySource, ModelSpec, resolve};
use crate::process;
use crate::session::{Fact, Frozen, Line, Listener, Session, Store};
use crate::world::World;

/// The version of the report.
const REPORT_VERSION: u32 = 1;

const NO_WORKSPACE: &str = "there is no workspace with `--tools stub`";

/// Replays a session.
///
/// # Errors
/// When there is nothing that could be replayed, or no place to do it in.
pub fn replay(tape: &Rc<Tape>, options: &Options) -> Result<Report, ReplayError> {
    if !tape.is_session() {
        return Err(ReplayError::RepliesOnly(tape.head().provenance.clone()));
    }
    let frozen = tape.frozen().ok_or_else(|| ReplayError::Lacks("what the session froze at its start".to_owned()))?;
    let parts = Part::all(tape);
    let first = parts.first().ok_or_else(|| ReplayError::Lacks("a run".to_owned()))?;
    if let Some(today) = &options.today
        && today.config.name != frozen.goal_name
    {
        let (recorded, now) = (frozen.goal_name.clone(), today.config.name.clone());
        return Err(ReplayError::OtherGoal { recorded, now });
    }
    let told = options.tools != ToolMode::Live;
    let scratch = Rc::new(Scratch::new(&options.temporary, &first.start, Asked::of(tape.facts()), told)?);
    let config = config(&frozen.config, &scratch.workspace)?;
    let (endpoints, catalogue) = endpoints(frozen, &config)?;
    let mut changed_parts = changed_parts(frozen, &config, &endpoints, catalogue, options)?;
    let mut report = Report {
        v: REPORT_VERSION,
        session: tape.head().source.as_ref().map_or(String::new(), |source| source.session.clone()),
        tools: options.tools.name(),
        sandbox: None,
        standing: Standing::Unverified,
        runs: 0,
        iterations: 0,
        steps: 0,
        processes: 0,
        compared: Vec::new(),
        changed: std::mem::take(&mut changed_parts),
        diverged: Vec::new(),
        warnings: Vec::new(),
        variants: Vec::new(),
    };
    if report.changed.iter().any(|part| !part.from_tape) {
        report.compared = compared(&BTreeMap::new(), &[], 0, Some("not replayed"), &BTreeMap::new());
        report.standing = Report::overall(&report.compared, &report.changed);
        return Ok(report);
    }
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let real = options.real.as_deref().filter(|_| options.tools == ToolMode::Live);
    if real.is_some() {
        builder.enable_all();
    }
    let runtime = builder.build().map_err(ReplayError::Runtime)?;
    if let Some(real) = real {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, fill(real, &config, tape, &first.start, &scratch))?;
    }
    let base_files = base_files(tape.facts());
    let ground = Rc::new(Ground::new(tape, &scratch.workspace, options.tools));
    let mut whole = Whole {
        tape,
        frozen,
        options,
        scratch,
        endpoints,
        config,
        base_files,
        ground,
        told: Rc::default(),
        runtime,
        sandbox: RefCell::default(),
    };
    let before = process::started();
    whole.all(parts, &mut report)?;
    report.sandbox = whole.sandbox.take();
    report.processes = process::started() - before;
    Ok(report)
}

/// The configuration that a session was started with, in another workspace.
pub fn config(yaml: &str, workspace: &Path) -> Result<Config, ReplayError> {
    let source = GoalSource::Recorded { yaml: yaml.to_owned() };
    let setting = Setting {
        flag: "--workspace".to_owned(),
        key: "workspace".to_owned(),
        value: workspace.to_string_lossy().into_owned(),
    };
    let overrides = Overrides { settings: vec![setting], checks: Vec::new(), untrusted: false };
    let loaded = load(&source, &overrides, &FewVars::default(), None, workspace).map_err(ReplayError::Config)?;
    let digest = crate::goal::goal_digest(yaml);
    Ok(Config { goal_file: None, yaml: yaml.to_owned(), digest, ..loaded.config })
}

/// The endpoints as they stood, and what this build's catalogue says of them now, where it is something else or nothing.
fn endpoints(frozen: &Frozen, config: &Config) -> Result<(Endpoints, Vec<Changed>), ReplayError> {
    let mut changed = Vec::new();
    let mut lane = |lane: Lane, spec: &ModelSpec| -> Result<Option<Endpoint>, ReplayError> {
        let Some(stored) = frozen.endpoints.get(lane.name()) else { return Ok(None) };
        let stored: Endpoint = serde_json::from_value(stored.clone())
            .map_err(|error| ReplayError::Lacks(format!("a readable endpoint of the {lane}: {error}")))?;
        let sizes = |endpoint: &Endpoint| {
            let price = endpoint.price.as_ref().map(|price| serde_json::to_string(price).unwrap_or_default());
            format!(
                "window {} tokens\noutput {} tokens\nprice {}\n",
                endpoint.window_tokens,
                endpoint.max_output_tokens,
                price.unwrap_or_else(|| "unknown".to_owned())
            )
        };
        // A recording that was the model of this one is no part of the catalogue.
        let mut fresh = resolve(spec, &config.providers, &config.prices, &keys_of(&stored));
        if let Ok(fresh) = &mut fresh
            && fresh.window_assumed
        {
            // Nobody names it here; its server was asked at the time.
            (fresh.window_tokens, fresh.max_output_tokens) = (stored.window_tokens, stored.max_output_tokens);
        }
        let now = match &fresh {
            Ok(fresh) => sizes(fresh),
            Err(error) => format!("{error}\n"),
        };
        if stored.cassette.is_none() && sizes(&stored) != now {
            let recorded = sizes(&stored);
            let which = format!("what the catalogue says of {}", stored.name());
            // Lanes may share a model.
            if changed.iter().all(|one: &Changed| one.which != which) {
                changed.push(Changed { source: Source::Config, which, recorded, now });
            }
        }
        // It is not stored with the rest.
        let extra_body = fresh.map_or_else(|_| stored.extra_body.clone(), |fresh| fresh.extra_body);
        Ok(Some(Endpoint { extra_body, ..stored }))
    };
    let missing = |lane: &str| ReplayError::Lacks(format!("the endpoint of the {lane}"));
    let agent = lane(Lane::Agent, &config.model)?.ok_or_else(|| missing("agent"))?;
    let judge = match &config.judge {
        Some(judge) => lane(Lane::Judge, judge.model.as_ref().unwrap_or(&config.model))?,
        None => None,
    };
    let summarizer = lane(Lane::Summarizer, config.summarizer.as_ref().unwrap_or(&config.model))?;
    let summarizer = summarizer.unwrap_or_else(|| agent.clone());
    Ok((Endpoints { agent, judge, summarizer }, changed))
}

/// Variables that hold a key or a header, where the endpoint wants one: the catalogue is asked, and nobody else.
fn keys_of(endpoint: &Endpoint) -> FewVars {
    let keys = match &endpoint.key {
        KeySource::Env(names) => names.as_slice(),
        KeySource::At(_) | KeySource::None => &[],
    };
    FewVars(
        keys.iter().chain(endpoint.env_headers.values()).map(|name| (name.clone(), "replayed".to_owned())).collect(),
    )
}

fn changed_parts(
    frozen: &Frozen,
    config: &Config,
    endpoints: &Endpoints,
    catalogue: Vec<Changed>,
    options: &Options,
) -> Result<Vec<ChangedPart>, ReplayError> {
    let lanes = Lanes { agent: &endpoints.agent, judge: endpoints.judge.as_ref(), summarizer: &endpoints.summarizer };
    let today = options.today.as_ref().map(|today| (&today.config, &today.secrets));
    let all = changed(frozen, config, &lanes, today).map_err(ReplayError::Real)?.into_iter().chain(catalogue);
    let parts = all.map(|part| ChangedPart {
        source: part.source.name(),
        from_tape: options.from_tape.contains(&part.source),
        diff: diff(&part.recorded, &part.now),
        which: part.which,
    });
    Ok(parts.collect())
}

/// By path, how files were at the baseline that ever differed from it.
fn base_files(facts: &[Line]) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for line in facts {
        let Fact::Listing { changed, .. } = &line.fact else { continue };
        for change in changed {
            if let Some(before) = &change.before {
                files.entry(PathBuf::from(&change.path)).or_insert_with(|| before.clone());
            }
        }
    }
    files
}

/// The kind of the first fact that this build does not know.
fn unknown_kind(facts: &[Line]) -> Option<&str> {
    facts.iter().find_map(|line| match &line.fact {
        Fact::Unknown(fact) => Some(fact.kind.as_str()),
        _ => None,
    })
}

/// Digests what happens in the replay's own session, as the recording's end does.
#[derive(Default)]
struct Told(RefCell<EventDigest>);

impl Listener for Told {
    fn event(&self, record: &Record) {
        // Others exist in no log.
        if record.fact.is_some() {
            self.0.borrow_mut().take(&record.event);
        }
    }
}

struct Whole<'a> {
    tape: &'a Rc<Tape>,
    frozen: &'a Frozen,
    options: &'a Options,
    scratch: Rc<Scratch>,
    endpoints: Endpoints,
    config: Config,
    base_files: BTreeMap<PathBuf, String>,
    ground: Rc<Ground>,
    told: Rc<Told>,
    runtime: tokio::runtime::Runtime,
    /// The level obtained for what really ran.
    sandbox: RefCell<Option<String>>,
}

impl Whole<'_> {
    fn all(&mut self, parts: Vec<Part>, report: &mut Report) -> Result<(), ReplayError> {
        let mut counts: BTreeMap<Aspect, u64> = BTreeMap::new();
        let mut dir: Option<PathBuf> = None;
        let mut cut_short = None;
        let count = parts.len() as u64;
        let to_its_end = !self.tape.is_cut() && parts.iter().all(|part| part.ended);
        for (index, part) in parts.into_iter().enumerate() {
            let number = index as u64 + 1;
            let cursor = Rc::new(Cursor::new(part, self.options.tools, number, report.iterations, report.steps));
            let stop = self.one(&cursor, &mut dir)?;
            if let Some(Stop::Signal(outcome)) = stop {
                return Err(ReplayError::Stopped(outcome));
            }
            report.runs = number;
            (report.iterations, report.steps) = cursor.stands();
            for (what, more) in cursor.counts.borrow().iter() {
                *counts.entry(*what).or_default() += more;
            }
            let why_ended = cursor.why_ended().filter(|_| stop != Some(Stop::Diverged));
            if stop != Some(Stop::Diverged) && why_ended.is_none() && cursor.part.ended && !cursor.complete() {
                let left = cursor.left();
                let text = format!("the recording goes on with {}", left.join(", "));
                let divergence = Divergence { guess: Guess::Unknown, ..cursor.differs(Aspect::Leftovers, text) };
                cursor.find(divergence);
            }
            report.warnings.extend(cursor.warnings.take());
            let found = cursor.found.take();
            let diverged = !found.is_empty();
            report.diverged.extend(found);
            if diverged {
                if stop.is_some() || number < count {
                    cut_short = Some("not compared behind the divergence".to_owned());
                }
                break;
            }
            if why_ended.is_some() {
                cut_short = why_ended;
                break;
            }
            if cursor.part.edited {
                cut_short = Some("the session was edited behind one of its runs".to_owned());
                break;
            }
        }
        let recorded = self.options.tools == ToolMode::Recorded;
        if recorded && report.diverged.is_empty() && cut_short.is_none() && to_its_end {
            self.told(report);
        }
        let mut doubts = BTreeMap::new();
        if self.tape.is_cut() {
            doubts.insert(Aspect::Leftovers, "the file breaks off: what would follow is not known".to_owned());
        }
        if let Some(kind) = unknown_kind(self.tape.facts()) {
            doubts.insert(Aspect::Events, format!("it holds facts that this build does not know (`{kind}`)"));
        }
        let (mut trees, mut files) = self.ground.tallies();
        if self.options.tools == ToolMode::Stub {
            let none = || Some(NO_WORKSPACE.to_owned());
            (trees, files) = (Tally { count: 0, doubt: none() }, Tally { count: 0, doubt: none() });
            if !self.tape.exchanges(Lane::Judge).is_empty() {
                doubts.insert(Aspect::Requests, format!("the judge's were not compared: {NO_WORKSPACE}"));
            }
        }
        for (what, tally) in [(Aspect::Trees, trees), (Aspect::Files, files)] {
            counts.insert(what, tally.count);
            doubts.extend(tally.doubt.map(|doubt| (what, doubt)));
        }
        report.compared = compared(&counts, &report.diverged, report.warnings.len(), cut_short.as_deref(), &doubts);
        report.standing = Report::overall(&report.compared, &report.changed);
        Ok(())
    }

    /// All that happened has the digest of what was recorded.
    fn told(&self, report: &mut Report) {
        let now = self.told.0.take().finish();
        let recorded = event_digest(self.tape.facts());
        if now != recorded {
            report.diverged.push(Divergence {
                what: Aspect::Events,
                text: "the events have another digest than the recorded ones".to_owned(),
                run: report.runs,
                iteration: report.iterations,
                step: report.steps,
                lane: None,
                call: None,
                message: None,
                pointer: String::new(),
                byte: None,
                diff: diff(&recorded, &now),
                guess: Guess::Unknown,
            });
        }
    }

    fn one(&self, cursor: &Rc<Cursor>, dir: &mut Option<PathBuf>) -> Result<Option<Stop>, ReplayError> {
        // With it ends whatever the run leaves on its thread.
        let local = tokio::task::LocalSet::new();
        let (stop, world) = local.block_on(&self.runtime, self.again(cursor, dir))?;
        drop(local);
        if !cursor.part.ended
            && matches!(stop, None | Some(Stop::Exhausted))
            && let Some(dir) = dir
        {
            cut(&dir.join("session.jsonl"), cursor.met()).map_err(|error| ReplayError::Scratch(dir.clone(), error))?;
            self.runtime.block_on(die_as_recorded(&world, dir, cursor))?;
        }
        Ok(stop)
    }

    async fn again(
        &self,
        cursor: &Rc<Cursor>,
        dir: &mut Option<PathBuf>,
    ) -> Result<(Option<Stop>, World), ReplayError> {
        let start = &cursor.part.start;
        let mut config = match &start.config {
            Some(yaml) => config(yaml, &self.scratch.workspace)?,
            None => self.config.clone(),
        };
        let named_window = config.model.context_window.filter(|_| start.config.is_some());
        if config.limits != start.limits {
            let text = "the limits that the run started with are not those of its configuration".to_owned();
            let shown = |limits: &Limits| serde_json::to_string_pretty(limits).unwrap_or_default();
            let diff = diff(&shown(&start.limits), &shown(&config.limits));
            cursor.find(Divergence { pointer: "/limits".to_owned(), diff, ..cursor.differs(Aspect::Events, text) });
        }
        config.limits.clone_from(&start.limits);
        config.goal.clone_from(&self.frozen.goal);
        config.name.clone_from(&self.frozen.goal_name);
        self.ground.begin(&cursor.part, config.record_effects);
        let again = Again {
            cursor: cursor.clone(),
            scratch: self.scratch.clone(),
            frozen: self.frozen,
            config,
            endpoints: &self.endpoints,
            options: self.options,
            base_files: &self.base_files,
            ground: &self.ground,
            named_window,
        };
        let (world, clock) = again.world();
        let heads = Heads {
            cursor: cursor.clone(),
            scratch: self.scratch.clone(),
            branch: RefCell::new(start.git_branch.clone()),
        };
        let listeners: Vec<Rc<dyn Listener>> = vec![Rc::new(Tap(cursor.clone())), Rc::new(heads), self.told.clone()];
        let (session, lines) = match dir {
            None => {
                let store = Store::new(self.scratch.sessions());
                let id = self.tape.head().source.as_ref().map_or("session", |source| source.session.as_str());
                let shown = Path::new(&start.workspace);
                let session = Session::create(&world, &store, shown, id, &start.run, listeners)?;
                *dir = Some(session.dir());
                (session, Vec::new())
            }
            Some(dir) => {
                let opened = Session::open(&world, dir, &start.run, listeners).await?;
                (opened.session, opened.lines)
            }
        };
        let live = match self.options.real.as_deref().filter(|_| self.options.tools == ToolMode::Live) {
            Some(real) => {
                let (workspace, sessions) = (&self.scratch.workspace, self.scratch.sessions());
                let started = real.start(&again.config, workspace).map_err(ReplayError::Real)?;
                let git = session.git_dir()?;
                let confined = real.confine(&started, &again.config, workspace, &sessions, &git);
                let (policy, level) = confined.map_err(ReplayError::Real)?;
                self.sandbox.replace(Some(level));
                Some(Live { real, started, policy })
            }
            None => None,
        };
        let stop = again.drive(session, world.clone(), &clock, lines, live).await;
        Ok((stop, world))
    }
}

/// What the recorded run still wrote of a reply whose bytes are lost with it stands in the replay's log too: the next
/// run resumes from there. (What names entries is numbered otherwise here, and is left out.)
async fn die_as_recorded(world: &World, dir: &Path, cursor: &Cursor) -> Result<(), ReplayError> {
    let unmet = cursor.unmet();
    let plain = |fact: &Fact| !matches!(fact, Fact::Prune(_) | Fact::Compaction(_) | Fact::Settled(_));
    if unmet.is_empty() || !unmet.iter().all(plain) {
        return Ok(());
    }
    let opened = Session::open(world, dir, &cursor.part.start.run, Vec::new()).await?;
    opened.session.append_all(unmet)?;
    Ok(())
}

/// Cuts the replay's own log behind a line, as the death of the recorded run had.
fn cut(path: &Path, seq: u64) -> std::io::Result<()> {
    let mut kept = Vec::new();
    let reader = BufReader::new(std::fs::File::open(path)?);
    // The header stands before the first line.
    for line in reader.split(b'\n').take(seq as usize + 1) {
        kept.extend(line?);
        kept.push(b'\n');
    }
    std::fs::File::create(path)?.write_all(&kept)
}
