//! The one door to a tool.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::args::Args;
use super::error::ToolError;
use super::escape::escape;
use super::files;
use super::jobs::{self, Matched};
use super::names::{self, Form, Tool};
use super::output::{COMMAND_CHARS, SPOOL_OVER_BYTES, Whole, clip, cut, fits, one_line};
use super::page::page;
use super::schema::{self, Text};
use super::web::{self, Web};
use super::{bash, search, tasks};
use crate::event::{TaskGraph, ToolStatus};
use crate::model::ToolSchema;
use crate::process::sandbox::{Network, Policy};
use crate::session::{ReadMark, Spool};
use crate::world::{Boxed, Roots, Secrets, World};

const SUMMARY_CHARS: usize = 120;

/// What the tools of a session need to know once.
pub struct ToolOptions {
    /// Names of the only tools to offer; `tool-output` comes with every tool that it serves.
    pub allow: Option<Vec<String>>,
    /// Names of tools not to offer.
    pub deny: Vec<String>,
    /// `limits.command`: default and most of a command's timeout.
    pub command_limit: Duration,
    /// Folders that no file tool may touch (spettro's home, session store).
    pub own_dirs: Vec<std::path::PathBuf>,
    /// What file tools may read and write: the same as commands.
    pub policy: Rc<Policy>,
    /// What `web-fetch` may reach; it is offered where `allow` names it and there is a network.
    pub web: Web,
    /// Offer the job tools and `wait` (background jobs).
    pub jobs: bool,
    /// Names of variables that were taken out of the commands' environment.
    pub removed: Vec<String>,
    /// Replaced in every result, whatever tool it comes from.
    pub secrets: Secrets,
}

/// A tool call of a reply.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text as the model wrote it.
    pub arguments: String,
}

/// What a tool call gave.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The tool's real name (aliases and near misses resolved), or the name as written when unknown.
    pub tool: String,
    /// At most 120 characters, no control characters: `"cargo test"`, `src/main.rs`.
    pub summary: String,
    pub status: ToolStatus,
    /// What the model sees.
    pub text: String,
    /// The whole output before any cut, for a later, smaller cut.
    pub full: Whole,
    /// Of the whole output: what a command printed, else of `full`.
    pub output_bytes: u64,
    /// The id under which `full` is kept.
    pub spool: Option<u64>,
    pub marks: Vec<ReadMark>,
    /// Shown paths of files it changed.
    pub changed: Vec<String>,
    /// The graph after a `todo-write` that changed it.
    pub tasks: Option<TaskGraph>,
    /// `goal-complete`: summary, verified.
    pub complete: Option<(String, Option<String>)>,
    /// The background job that it started.
    pub job: Option<String>,
}

impl Ran {
    /// Waits for the file that a further cut will name: that of a command's output which was whole until now. True when
    /// it is there.
    pub async fn filed(&mut self, spool: &Spool) -> bool {
        if let Some(id) = self.spool.filter(|_| self.tool == Tool::Bash.name() && !self.full.filed) {
            self.full.filed = spool.written(id).await;
            return self.full.filed;
        }
        false
    }
}

/// What a tool gave that looks at the workspace or waits for jobs, when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: ToolStatus,
    /// Whole, before any cut.
    pub text: String,
    pub output_bytes: u64,
    pub marks: Vec<ReadMark>,
    pub changed: Vec<String>,
}

/// Answers in place of tools. State tools (tasks, spooled outputs, the end of the turn) and commands are not asked for.
pub trait Answers {
    /// Pends where the recorded call never ended.
    fn answer<'a>(&'a self, call: &'a ToolCall) -> Boxed<'a, Answer>;

    /// Whether a tool that looks at files or changes them runs beside its answer, in the workspace that there is. It is
    /// given this path, as it was written.
    fn runs_too(&self, path: &str) -> bool;

    /// Whether every such tool really runs, and before its answer is asked for.
    fn in_earnest(&self) -> bool {
        false
    }

    /// What such a tool gave when it ran, against what it is told to have given.
    fn ran(&self, call: &ToolCall, told: &Answer, real: &Answer);
}

/// A call that has been understood.
struct Asked {
    tool: Tool,
    form: Form,
    args: Args,
}

/// Where a call runs.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub world: &'a World,
    pub roots: &'a Roots,
    pub options: &'a ToolOptions,
}

impl<'a> Place<'a> {
    pub(super) fn guard(&self) -> files::Guard<'a> {
        files::Guard::new(self.roots, &self.options.own_dirs, &self.options.policy)
    }
}

/// What a tool itself gives.
pub(super) struct Done {
    pub status: ToolStatus,
    pub output: Whole,
    pub output_bytes: Option<u64>,
    pub marks: Vec<ReadMark>,
    pub changed: Vec<String>,
    pub tasks: Option<TaskGraph>,
    pub complete: Option<(String, Option<String>)>,
    pub job: Option<String>,
}

impl Done {
    pub(super) fn ok(text: String) -> Done {
        Done::of(Whole::of_text(text))
    }

    pub(super) fn of(output: Whole) -> Done {
        Done {
            status: ToolStatus::Ok,
            output,
            output_bytes: None,
            marks: Vec::new(),
            changed: Vec::new(),
            tasks: None,
            complete: None,
            job: None,
        }
    }
}

/// An offered tool with its texts.
struct Offer {
    tool: Tool,
    text: Text,
    schema: Value,
}

/// The tools of one session, with what they remember: files read, tasks, jobs started.
pub struct Tools {
    options: ToolOptions,
    offers: Vec<Offer>,
    marks: BTreeMap<String, String>,
    tasks: TaskGraph,
    jobs_started: u64,
    matched: Matched,
    answers: Option<Rc<dyn Answers>>,
    fetching: Rc<Cell<bool>>,
}

impl Tools {
    pub fn new(options: ToolOptions) -> Tools {
        let seconds = options.command_limit.as_secs();
        let named = |list: &[String], tool: Tool| list.iter().any(|name| name == tool.name());
        let wanted = |tool: Tool| {
            options.allow.as_ref().is_none_or(|allow| named(allow, tool))
                && !named(&options.deny, tool)
                && (options.jobs || !tool.is_for_jobs())
                && (tool != Tool::WebFetch || (options.allow.is_some() && options.web.network != Network::None))
        };
        let serves = Tool::ALL.iter().any(|tool| tool.spools() && wanted(*tool));
        let offered = Tool::ALL.into_iter().filter(|tool| match tool {
            Tool::Output => wanted(*tool) || (serves && !named(&options.deny, *tool)),
            tool => wanted(*tool),
        });
        let offers = offered
            .map(|tool| {
                let text = schema::text(tool, seconds, options.jobs);
                // Every text is JSON (a test parses each of them).
                let schema = serde_json::from_str(&text.parameters).unwrap_or_default();
                Offer { tool, text, schema }
            })
            .collect();
        Tools {
            offers,
            options,
            marks: BTreeMap::new(),
            tasks: TaskGraph::default(),
            jobs_started: 0,
            matched: Matched::new(),
            answers: None,
            fetching: Rc::default(),
        }
    }

    /// Whether `web-fetch` is at work, for whoever watches the time: it is no command.
    pub fn fetching(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.fetching)
    }

    /// Tools that look at the workspace or wait for jobs give what was recorded.
    pub fn answered_by(&mut self, answers: Rc<dyn Answers>) {
        self.answers = Some(answers);
    }

    /// On resume: what was read and the tasks as they stood.
    pub fn restore(&mut self, marks: BTreeMap<String, String>, tasks: TaskGraph) {
        self.marks = marks;
        self.tasks = tasks;
    }

    /// On resume: the highest N of a `job-N` that the session has had.
    pub fn restore_jobs(&mut self, highest: u64) {
        self.jobs_started = self.jobs_started.max(highest);
    }

    /// As offered, in a fixed order; a pure function of the options.
    pub fn schemas(&self) -> Vec<ToolSchema> {
        self.offers.iter().filter_map(|offer| schema::offered(offer.tool, &offer.text)).collect()
    }

    pub fn tasks(&self) -> &TaskGraph {
        &self.tasks
    }

    fn resolve(&self, name: &str) -> Result<(&Offer, Form), ToolError> {
        let offered: Vec<Tool> = self.offers.iter().map(|offer| offer.tool).collect();
        let (tool, form) = names::resolve(name, &offered)?;
        let offer = self.offers.iter().find(|offer| offer.tool == tool).ok_or(ToolError::NotOffered(tool.name()))?;
        Ok((offer, form))
    }

    /// The resolved name and the one-line summary, before it runs.
    pub fn describe(&self, call: &ToolCall) -> (String, String) {
        let Ok((offer, form)) = self.resolve(&call.name) else {
            return (one_line(&call.name, SUMMARY_CHARS), String::new());
        };
        let name = offer.tool.name().to_owned();
        let Ok(Value::Object(args)) = serde_json::from_str(&call.arguments) else { return (name, String::new()) };
        (name, summary(offer.tool, form, Args(args)))
    }

    /// Whether the (resolved) call can change the workspace (bash, file-write, file-edit).
    pub fn changes(&self, call: &ToolCall) -> bool {
        let Ok((offer, _)) = self.resolve(&call.name) else { return false };
        match offer.tool {
            Tool::FileWrite | Tool::FileEdit => true,
            Tool::Bash => match serde_json::from_str::<Map<String, Value>>(&call.arguments) {
                Ok(args) => args.contains_key("command"),
                Err(_) => false,
            },
            _ => false,
        }
    }

    /// Runs one call to its end. `budget_chars` is the most that the result may take besides the tool's own limit.
    /// Dropping the future ends a running command. Never fails: every problem is an error result.
    pub async fn run(
        &mut self,
        world: &World,
        roots: &Roots,
        spool: &Spool,
        call: &ToolCall,
        budget_chars: usize,
    ) -> Ran {
        let (tool, summary) = self.describe(call);
        let done = match self.perform(world, roots, spool, call, budget_chars).await {
            Ok(done) => done,
            Err(error) => failed(&error),
        };
        for mark in &done.marks {
            self.marks.insert(mark.path.clone(), mark.sha256.clone());
        }
        if let Some(tasks) = &done.tasks {
            self.tasks = tasks.clone();
        }
        // Once, before anything measures, stores or sends it.
        let mut full = done.output.without(&self.options.secrets);
        let whole = fits(&tool, full.text(), budget_chars);
        let body = full.bytes();
        let output_bytes = done.output_bytes.unwrap_or(body.len() as u64);
        let spooled = body.len() > SPOOL_OVER_BYTES || !whole;
        let kept = spooled.then(|| spool.put(body));
        // Only what names its file waits for it: everybody else reads it from memory until then.
        if let Some(id) = kept.filter(|_| tool == Tool::Bash.name() && !whole) {
            full.filed = spool.written(id).await;
        }
        let text = cut(&tool, &full, budget_chars, kept);
        Ran {
            tool,
            summary,
            status: done.status,
            text,
            output_bytes,
            full,
            spool: kept,
            marks: done.marks,
            changed: done.changed,
            tasks: done.tasks,
            complete: done.complete,
            job: done.job,
        }
    }

    async fn perform(
        &mut self,
        world: &World,
        roots: &Roots,
        spool: &Spool,
        call: &ToolCall,
        budget_chars: usize,
    ) -> Result<Done, ToolError> {
        let (offer, form) = self.resolve(&call.name)?;
        let tool = offer.tool;
        let args = match schema::alias(form) {
            None => Args::parse(&call.arguments, &offer.schema)?,
            // Every alias's text is JSON (a test parses each of them).
            Some(text) => Args::parse(&call.arguments, &serde_json::from_str(&text).unwrap_or_default())?,
        };
        if let Some(answers) = &self.answers
            && (tool.is_outside() || (tool == Tool::Bash && !args.has("command")))
        {
            let answers = answers.clone();
            let asked = Asked { tool, form, args };
            let answer = if answers.in_earnest() {
                let real = self.beside(world, roots, spool, asked, budget_chars).await;
                let answer = answers.answer(call).await;
                answers.ran(call, &answer, &real);
                answer
            } else {
                let answer = answers.answer(call).await;
                if tool.is_for_files() && answers.runs_too(asked.args.text("path").unwrap_or(".")) {
                    let real = self.beside(world, roots, spool, asked, budget_chars).await;
                    answers.ran(call, &answer, &real);
                }
                answer
            };
            return Ok(Done {
                status: answer.status,
                output_bytes: Some(answer.output_bytes),
                marks: answer.marks,
                changed: answer.changed,
                ..Done::ok(answer.text)
            });
        }
        self.really(world, roots, spool, Asked { tool, form, args }, budget_chars).await
    }

    /// What a tool gives that has an answer already.
    async fn beside(
        &mut self,
        world: &World,
        roots: &Roots,
        spool: &Spool,
        asked: Asked,
        budget_chars: usize,
    ) -> Answer {
        let real = self.really(world, roots, spool, asked, budget_chars).await;
        let real = real.unwrap_or_else(|error| failed(&error));
        let output = real.output.without(&self.options.secrets);
        let (status, marks, changed) = (real.status, real.marks, real.changed);
        Answer { status, text: output.text().to_owned(), output_bytes: 0, marks, changed }
    }

    async fn really(
        &mut self,
        world: &World,
        roots: &Roots,
        spool: &Spool,
        asked: Asked,
        budget_chars: usize,
    ) -> Result<Done, ToolError> {
        let Asked { tool, form, args } = asked;
        let at = Place { world, roots, options: &self.options };
        match tool {
            Tool::Bash => match (args.has("command"), args.has("job_id")) {
                (true, false) => {
                    if args.has("offset") {
                        return Err(ToolError::argument("offset", "goes only with `job_id`"));
                    }
                    let (number, name) = jobs::next_id(&*world.exec, self.jobs_started);
                    let done = bash::run(at, &args, &name).await?;
                    if done.job.is_some() {
                        self.jobs_started = number;
                    }
                    Ok(done)
                }
                (false, true) => match args.0.keys().find(|name| !matches!(name.as_str(), "job_id" | "offset")) {
                    Some(name) => Err(ToolError::argument(name, "does not go with `job_id`")),
                    None => jobs::output(at, &args),
                },
                (true, true) => Err(ToolError::argument("job_id", "does not go with `command`: give one of them")),
                (false, false) => Err(ToolError::argument("command", "is missing; expected a string")),
            },
            Tool::JobOutput => jobs::output(at, &args),
            Tool::JobKill => jobs::kill(at, &args).await,
            Tool::Wait => jobs::wait(at, &args, &mut self.matched).await,
            Tool::FileRead => files::read(at, &args),
            Tool::FileWrite => files::write(at, &args, &self.marks),
            Tool::FileEdit => files::edit(at, &args, &self.marks),
            Tool::Grep => search::grep(at, &args),
            Tool::Glob => search::glob(at, &args),
            Tool::WebFetch => {
                let _busy = web::Busy::new(&self.fetching);
                web::fetch(at, &args).await
            }
            Tool::TodoWrite => {
                let change = tasks::change_of(&args, form)?;
                let (graph, notes) = tasks::apply(&self.tasks, &change)?;
                let text = tasks::render(&graph, &notes);
                Ok(Done { tasks: (graph != self.tasks).then_some(graph), ..Done::ok(text) })
            }
            Tool::Output => {
                let id = match args.number("id") {
                    Some(id) => id.to_string(),
                    None => args.required("id")?.to_owned(),
                };
                let budget = budget_chars.min(COMMAND_CHARS);
                let offset = args.number("offset").unwrap_or(0);
                Ok(Done::ok(page(spool, &id, offset, args.number("limit"), budget)?))
            }
            Tool::GoalComplete => {
                let summary = args.required("summary")?.to_owned();
                let verified = args.text("verified").map(str::to_owned);
                let text = "the turn ends here; the result is checked next".to_owned();
                Ok(Done { complete: Some((summary, verified)), ..Done::ok(text) })
            }
        }
    }
}

/// What the model wrote may come back in it, control characters too.
fn failed(error: &ToolError) -> Done {
    Done { status: error.status(), ..Done::ok(escape(format!("error: {error}").as_bytes())) }
}

/// One line about a call, from its arguments as written (they may not fit the schema).
fn summary(tool: Tool, form: Form, args: Args) -> String {
    let quoted = |name: &str| match args.text(name) {
        Some(text) => format!("\"{}\"", one_line(text, SUMMARY_CHARS - 2)),
        None => String::new(),
    };
    let plain = |name: &str| args.text(name).unwrap_or_default().to_owned();
    let text = match tool {
        Tool::Bash if args.has("command") => quoted("command"),
        Tool::Bash | Tool::JobOutput | Tool::JobKill => plain("job_id"),
        Tool::Wait => match (args.text("job_id"), args.text("pattern")) {
            (Some(job), Some(pattern)) => format!("{job} \"{pattern}\""),
            (None, Some(pattern)) => format!("\"{pattern}\""),
            (job, None) => job.unwrap_or("any job").to_owned(),
        },
        Tool::FileRead | Tool::FileWrite | Tool::FileEdit => plain("path"),
        Tool::Grep => quoted("pattern"),
        Tool::Glob => args.text("pattern").or(args.text("path")).unwrap_or(".").to_owned(),
        Tool::TodoWrite => tasks::change_of(&args, form).map_or(String::new(), |change| tasks::summary(&change)),
        Tool::Output => match args.number("id") {
            Some(id) => format!("spool:{id}"),
            None => plain("id"),
        },
        Tool::WebFetch => plain("url"),
        Tool::GoalComplete => plain("summary"),
    };
    clip(&one_line(&text, SUMMARY_CHARS), SUMMARY_CHARS)
}
