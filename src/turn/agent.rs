//! The agent of a session: its history, its steps, its tools.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::nudge::{Repeat, Repeats};
use super::results;
use crate::compact::{Compactor, History, Overflow, Place};
use crate::event::{Event, Lane, ToolStatus, TurnEnd};
use crate::model::{Ask, CallError, Conversation, Endpoint, Gateway, ModelError, Reply, Stop};
use crate::session::{
    Block, Fact, Message, OpenJob, Origin, Output, Session, SessionError, Spool, State, ToolDone, ToolStart,
};
use crate::tools::{PLAN_UPDATED, Ran, ToolCall, Tools, Whole};
use crate::world::{Boxed, Halt, JobInfo, JobState, Roots, Why, World};

/// Most tool calls of one reply that are run.
const MOST_CALLS: usize = 32;
/// Replies in a row that may be cut at the output cap.
const MOST_CUTS: u32 = 3;
/// Nudges for replies without text and call.
const MOST_SILENT: u32 = 2;
/// Steps with open tasks and no `todo-write` before the reminder.
const STALE_TASKS_AFTER: u64 = 20;
/// The tool that says that the goal is reached.
const GOAL_COMPLETE: &str = "goal-complete";
/// A running tool call may finish for so long when the run drains.
const DRAIN_FOR: Duration = Duration::from_secs(60);

/// What the model reads of a call that was running when the run was stopped.
const INTERRUPTED: &str = "[interrupted: the run was stopped while this call ran; its effects are unknown]";

const WAIT_STOPPED: &str = "[interrupted: the run was stopped during this wait]";

/// Something that must be finished before the first tool that can change the workspace: the baseline.
pub type Gate = Boxed<'static, bool>;

/// Why a turn did not end by itself: the run ends.
#[derive(Debug)]
pub enum Ended {
    Call(CallError),
    Halted(Why),
    Session(SessionError),
    /// The baseline found something that ends the run.
    Baseline,
}

impl From<SessionError> for Ended {
    fn from(error: SessionError) -> Self {
        Ended::Session(error)
    }
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub struct TurnDone {
    pub end: TurnEnd,
    /// The last text of the agent in this turn.
    pub last_text: String,
    /// The summary given with `goal-complete`.
    pub complete: Option<String>,
    /// For failed and refused turns: why.
    pub why: Option<String>,
}

/// Everything an agent is made of.
pub struct AgentParts {
    pub world: World,
    pub session: Session,
    pub gateway: Rc<Gateway>,
    pub halt: Halt,
    pub roots: Roots,
    pub endpoint: Endpoint,
    pub tools: Tools,
    pub conversation: Conversation,
    /// What is said and sent so far, and what is said and not sent yet (on resume).
    pub history: History,
    pub compactor: Compactor,
    /// The history was edited and not sent since (on resume).
    pub edited: bool,
    /// Of the session.
    pub step_limit: u64,
    pub steps_per_iteration: u64,
    pub sync_strict: bool,
    /// Awaited before the first tool that can change something.
    pub gate: Option<Gate>,
    /// Texts to be delivered at the next step boundary.
    pub steering: Rc<RefCell<VecDeque<String>>>,
    /// How many messages the judge may want to see.
    pub recent: usize,
    /// The note that little is left, when that is so.
    pub pressing: Rc<dyn Fn() -> Option<String>>,
}

pub struct Agent {
    parts: AgentParts,
    spool: Rc<Spool>,
    wound_down: bool,
    /// The last reply ended because the window is full.
    full: bool,
    /// The latest reply is logged, and the disk was not told yet.
    unsynced: bool,
    recent: VecDeque<Message>,
    /// Jobs whose end, or whose leader's, the agent was told.
    jobs_told: BTreeMap<String, JobState>,
    /// The turn that is gone on with had ended already.
    over: Option<TurnDone>,
}

/// What is counted within one turn.
#[derive(Default)]
struct Turn {
    steps: u64,
    repeats: Repeats,
    silent: u32,
    cuts: u32,
    /// Replies in a row that ended because the window was full.
    full: u32,
    since_tasks: u64,
    reminded: bool,
    plan_line: bool,
    last_text: String,
}

impl Agent {
    pub fn new(parts: AgentParts) -> Agent {
        let spool = parts.session.spool();
        Agent {
            parts,
            spool,
            wound_down: false,
            full: false,
            unsynced: false,
            recent: VecDeque::new(),
            jobs_told: BTreeMap::new(),
            over: None,
        }
    }

    /// Logs a message and keeps it for the next request.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn say(&mut self, message: Message) -> Result<(), SessionError> {
        let entry = self.parts.session.append(Fact::Message(message.clone()))?;
        self.keep(message.clone());
        self.parts.history.push(entry, message);
        Ok(())
    }

    /// Keeps a message for whoever asks for the latest ones.
    pub fn keep(&mut self, message: Message) {
        if self.recent.len() >= self.parts.recent.max(1) {
            self.recent.pop_front();
        }
        self.recent.push_back(message);
    }

    /// The latest messages, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &Message> {
        self.recent.iter()
    }

    fn operator(&mut self, text: impl Into<String>) -> Result<(), SessionError> {
        self.say(Message::Operator { text: text.into() })
    }

    pub const fn tools(&self) -> &Tools {
        &self.parts.tools
    }

    /// Waits for the baseline; false when it ended the run.
    pub async fn baseline(&mut self) -> bool {
        match self.parts.gate.take() {
            Some(gate) => gate.await,
            None => true,
        }
    }

    /// Works until the model asks for no more tools. `steps_taken` are those of this turn before a resume.
    ///
    /// # Errors
    /// What ends the run: see [`Ended`].
    pub async fn turn(&mut self, iteration: u64, steps_taken: u64) -> Result<TurnDone, Ended> {
        if let Some(done) = self.over.take() {
            return Ok(done);
        }
        let mut turn = Turn { steps: steps_taken, ..Turn::default() };
        loop {
            if let Some(why) = self.parts.halt.why() {
                return Err(Ended::Halted(why));
            }
            let taken = self.parts.gateway.ledger(|ledger| ledger.calls(Lane::Agent));
            if taken >= self.parts.step_limit || turn.steps >= self.parts.steps_per_iteration {
                return Ok(self.done(&turn, TurnEnd::Budget, None));
            }
            self.boundary(&mut turn)?;
            self.parts.session.emit(Event::StepStarted { iteration, step: taken + 1 });
            let reply = self.ask().await?;
            turn.steps += 1;
            turn.since_tasks += 1;
            let text = reply.text();
            if !text.trim().is_empty() {
                turn.last_text = text;
            }
            let acted = self.act(&mut turn, &reply).await?;
            self.sync_reply();
            if let Some(done) = acted {
                return Ok(done);
            }
        }
    }

    fn done(&self, turn: &Turn, end: TurnEnd, why: Option<String>) -> TurnDone {
        TurnDone { end, last_text: turn.last_text.clone(), complete: None, why }
    }

    /// What reaches the agent between two steps: steering, exits of jobs, notes.
    fn boundary(&mut self, turn: &mut Turn) -> Result<(), SessionError> {
        let before_call = self.parts.gateway.ledger(|ledger| ledger.next_n(Lane::Agent));
        self.parts.session.tell_spool()?;
        loop {
            let next = self.parts.steering.borrow_mut().pop_front();
            let Some(text) = next else { break };
            self.parts.session.append(Fact::Delivery { what: "steer".to_owned(), before_call })?;
            self.say(Message::User { origin: Origin::Steer, text })?;
        }
        for job in self.parts.world.exec.jobs() {
            if !self.is_news(&job) {
                continue;
            }
            let text = job_line(&job);
            if !job.state.alive() {
                self.parts.session.append(job_exited(&job))?;
                self.parts.session.append(Fact::Delivery { what: job.id.clone(), before_call })?;
            }
            self.say(Message::User { origin: Origin::Job, text })?;
            self.jobs_told.insert(job.id, job.state);
        }
        if !turn.reminded && turn.since_tasks >= STALE_TASKS_AFTER && self.parts.tools.tasks().open_count() > 0 {
            turn.reminded = true;
            self.operator(format!(
                "{} tasks of your list are open and it was not updated for {STALE_TASKS_AFTER} steps. Bring it up to \
                 date with todo-write beside your next action.",
                self.parts.tools.tasks().open_count()
            ))?;
        }
        if !self.wound_down
            && let Some(note) = (self.parts.pressing)()
        {
            self.wound_down = true;
            self.operator(note)?;
        }
        Ok(())
    }

    /// Whether a job is over, or its leader is, and the agent does not know. How many a leader has left changes
    /// from moment to moment, and is no news.
    fn is_news(&self, job: &JobInfo) -> bool {
        match (&job.state, self.jobs_told.get(&job.id)) {
            (JobState::Running, _) | (JobState::LeaderExited { .. }, Some(_)) => false,
            (JobState::LeaderExited { .. }, None) => true,
            (state, told) => told != Some(state),
        }
    }

    /// The jobs that live, each with its command.
    pub fn running_jobs(&self) -> Vec<String> {
        let jobs = self.parts.world.exec.jobs();
        jobs.iter().filter(|job| job.state.alive()).map(|job| format!("{} ({})", job.id, job.command)).collect()
    }

    /// At the end of a run, when all children are gone: the jobs that ended with it and before the next boundary.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn close_jobs(&self) -> Result<(), SessionError> {
        for job in self.parts.world.exec.jobs() {
            if !job.state.alive() && self.jobs_told.get(&job.id) != Some(&job.state) {
                self.parts.session.append(job_exited(&job))?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self) -> Result<Reply, Ended> {
        self.parts.conversation.seal(self.parts.history.take_unsealed());
        if std::mem::take(&mut self.parts.edited) {
            self.parts.conversation.trust();
        }
        if std::mem::take(&mut self.full) {
            self.overflowed(Overflow::Refused { limit_tokens: None }).await?;
        } else {
            let (compactor, mut place) = self.compaction();
            compactor.before_call(&mut place).await.map_err(call_ended)?;
        }
        let overflow = match self.send().await {
            Err(Ended::Call(CallError::NoRoom { .. })) => Overflow::NoRoom,
            Err(Ended::Call(CallError::Model(ModelError::ContextOverflow { limit_tokens, .. }))) => {
                Overflow::Refused { limit_tokens }
            }
            other => return other,
        };
        // Once; what does not fit then ends the run.
        self.overflowed(overflow).await?;
        self.send().await
    }

    /// Makes room for a request that does not fit. Without any, the request meets the same error again.
    async fn overflowed(&mut self, overflow: Overflow) -> Result<(), Ended> {
        let (compactor, mut place) = self.compaction();
        compactor.overflowed(&mut place, overflow).await.map(|_| ()).map_err(call_ended)
    }

    fn compaction(&mut self) -> (&mut Compactor, Place<'_>) {
        let AgentParts { gateway, session, endpoint, history, conversation, compactor, .. } = &mut self.parts;
        (compactor, Place { gateway, session, endpoint, history, conversation })
    }

    async fn send(&mut self) -> Result<Reply, Ended> {
        let ask = Ask {
            lane: Lane::Agent,
            endpoint: &self.parts.endpoint,
            force_tool: None,
            attempt_timeout: None,
            entry: true,
            patience: None,
        };
        let reply = self.parts.gateway.call(&mut self.parts.conversation, &ask).await.map_err(call_ended)?;
        // The gateway has logged it, as the last entry there is.
        let entry = self.parts.session.last_entry();
        self.parts.history.push(entry, reply.message());
        self.unsynced = true;
        Ok(reply)
    }

    /// Lets the disk catch up with the latest reply, once. The next call waits for it.
    fn sync_reply(&mut self) {
        if std::mem::take(&mut self.unsynced) {
            self.parts.gateway.sync_beside();
        }
    }

    /// Acts on a reply that arrived whole; `Some` ends the turn.
    async fn act(&mut self, turn: &mut Turn, reply: &Reply) -> Result<Option<TurnDone>, Ended> {
        if let Stop::Refused(details) = &reply.stop {
            return Ok(Some(self.done(turn, TurnEnd::Refused, Some(details.clone()))));
        }
        if reply.stop == Stop::ContextExceeded {
            turn.full += 1;
            if turn.full > 1 {
                let message = "the reply ended because the window is full".to_owned();
                return Err(Ended::Call(CallError::Model(ModelError::ContextOverflow { message, limit_tokens: None })));
            }
            self.full = true;
            self.operator(
                "Your reply ended because the context window was full; none of its calls was run. Room is made; go on \
                 from there.",
            )?;
            return Ok(None);
        }
        turn.full = 0;
        let calls: Vec<ToolCall> = reply
            .calls()
            .map(|(id, name, arguments)| ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
            })
            .collect();
        self.keep(reply.message());

        if reply.stop == Stop::MaxTokens {
            turn.cuts += 1;
            if turn.cuts > MOST_CUTS {
                let why = "its replies were cut at the output cap again and again".to_owned();
                return Ok(Some(self.done(turn, TurnEnd::Failed, Some(why))));
            }
            self.operator(if calls.is_empty() {
                "Your reply was cut at the output cap. Go on exactly where it ended."
            } else {
                "Your reply was cut at the output cap inside a tool call; none of its calls was run. Issue the calls \
                 again, smaller: write long files in several parts."
            })?;
            return Ok(None);
        }
        turn.cuts = 0;
        if calls.is_empty() {
            if reply.stop == Stop::Pause {
                return Ok(None);
            }
            if reply.text().trim().is_empty() {
                turn.silent += 1;
                if turn.silent > MOST_SILENT {
                    let why = "its replies were empty".to_owned();
                    return Ok(Some(self.done(turn, TurnEnd::Failed, Some(why))));
                }
                self.operator("Your reply was empty. Go on with the goal: call a tool, or say what you found.")?;
                return Ok(None);
            }
            return Ok(Some(self.done(turn, TurnEnd::Done, None)));
        }
        turn.silent = 0;
        self.run_calls(turn, &calls).await
    }

    async fn run_calls(&mut self, turn: &mut Turn, calls: &[ToolCall]) -> Result<Option<TurnDone>, Ended> {
        let mut results: Vec<Ran> = Vec::new();
        let mut complete = None;
        let mut stuck = false;
        let mut tell = None;
        let only_tasks = calls.len() <= MOST_CALLS && calls.iter().all(|call| self.tool_name(call) == "todo-write");
        for (index, call) in calls.iter().enumerate() {
            let last = index + 1 == calls.len();
            let (mut ran, took) = if index >= MOST_CALLS {
                self.not_run(
                    call,
                    format!("not run: a reply may hold at most {MOST_CALLS} tool calls; this is call {}", index + 1),
                )
            } else if complete.is_some() {
                self.not_run(call, "not run: the turn ended with goal-complete".to_owned())
            } else {
                self.run_call(call).await?
            };
            if ran.tool == "todo-write" {
                turn.since_tasks = 0;
            }
            if last && only_tasks && !turn.plan_line && ran.status == ToolStatus::Ok {
                turn.plan_line = true;
                ran.text.push('\n');
                ran.text.push_str(PLAN_UPDATED);
            }
            if !matches!(ran.tool.as_str(), "wait" | "job-output") && ran.status != ToolStatus::Interrupted {
                match turn.repeats.saw(&ran.tool, &call.arguments, &ran.text) {
                    Repeat::Tell => tell = Some(ran.tool.clone()),
                    Repeat::Stuck => stuck = true,
                    Repeat::Fine => {}
                }
            }
            if let Some((summary, _)) = &ran.complete {
                complete = Some(summary.clone());
            }
            self.record(call, &ran, took)?;
            let interrupted = ran.status == ToolStatus::Interrupted;
            results.push(ran);
            if interrupted || self.parts.halt.why().is_some() {
                return Err(Ended::Halted(self.parts.halt.wait().await));
            }
        }
        for (index, text) in
            results::together(&results, self.parts.endpoint.window_tokens, self.parts.conversation.factor())
        {
            self.recut(&calls[index].id, text)?;
        }
        if let Some(summary) = complete {
            let mut done = self.done(turn, TurnEnd::Done, None);
            if done.last_text.trim().is_empty() {
                done.last_text.clone_from(&summary);
            }
            done.complete = Some(summary);
            return Ok(Some(done));
        }
        if stuck {
            return Ok(Some(self.done(turn, TurnEnd::Stuck, None)));
        }
        if let Some(tool) = tell {
            self.operator(format!(
                "The same {tool} call gave the same result three times in a row. Repeating it will not help: find out \
                 why, or take another way."
            ))?;
        }
        Ok(None)
    }

    fn tool_name(&self, call: &ToolCall) -> String {
        self.parts.tools.describe(call).0
    }

    fn not_run(&self, call: &ToolCall, text: String) -> (Ran, Duration) {
        let (tool, summary) = self.parts.tools.describe(call);
        let ran = Ran {
            tool,
            summary,
            status: ToolStatus::Refused,
            full: Whole::of_text(text.clone()),
            output_bytes: text.len() as u64,
            text,
            spool: None,
            marks: Vec::new(),
            changed: Vec::new(),
            tasks: None,
            job: None,
            complete: None,
        };
        (ran, Duration::ZERO)
    }

    /// Runs one call: logs that it starts, runs it, and when the run is halted ends what it started.
    async fn run_call(&mut self, call: &ToolCall) -> Result<(Ran, Duration), Ended> {
        if self.parts.tools.changes(call) && self.parts.gate.is_some() {
            let ready = self.parts.halt.clone().run(self.baseline()).await;
            match ready {
                Ok(true) => {}
                Ok(false) => return Err(Ended::Baseline),
                Err(why) => return Err(Ended::Halted(why)),
            }
        }
        if self.parts.sync_strict {
            self.parts.session.sync_now().await?;
        }
        let (tool, summary) = self.parts.tools.describe(call);
        self.parts.session.append(Fact::ToolStarted(ToolStart {
            call_id: call.id.clone(),
            tool: tool.clone(),
            summary: summary.clone(),
        }))?;
        let world = self.parts.world.clone();
        let halt = self.parts.halt.clone();
        let budget = results::one(self.parts.endpoint.window_tokens);
        let started = world.clock.elapsed();
        let ended = {
            let run = self.parts.tools.run(&world, &self.parts.roots, &self.spool, call, budget);
            tokio::pin!(run);
            let begun = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
            // The disk catches up while the command works, not before it starts.
            if std::mem::take(&mut self.unsynced) {
                self.parts.gateway.sync_beside();
            }
            match begun {
                Poll::Ready(ran) => Some(ran),
                Poll::Pending => {
                    // Who only waits has nothing to finish.
                    let patience = if tool == "wait" { Duration::ZERO } else { DRAIN_FOR };
                    unless_halted(run, &halt, &world, patience).await
                }
            }
        };
        let mut ran = ended.unwrap_or_else(|| {
            let text = if tool == "wait" { WAIT_STOPPED } else { INTERRUPTED }.to_owned();
            Ran {
                tool,
                summary,
                status: ToolStatus::Interrupted,
                full: Whole::of_text(text.clone()),
                output_bytes: 0,
                text,
                spool: None,
                marks: Vec::new(),
                changed: Vec::new(),
                tasks: None,
                job: None,
                complete: None,
            }
        });
        if halt.why().is_some_and(|why| why != Why::Drain) && self.parts.tools.changes(call) {
            ran.status = ToolStatus::Interrupted;
            if ran.text != INTERRUPTED {
                ran.text = format!("{}\n{INTERRUPTED}", ran.text.trim_end());
            }
        }
        Ok((ran, world.clock.elapsed().saturating_sub(started)))
    }

    /// Logs a call's end, and its result as the message it becomes.
    fn record(&mut self, call: &ToolCall, ran: &Ran, took: Duration) -> Result<(), SessionError> {
        let done = ToolDone {
            call_id: call.id.clone(),
            tool: ran.tool.clone(),
            summary: ran.summary.clone(),
            status: ran.status,
            duration_ms: took.as_millis() as u64,
            output_bytes: ran.output_bytes,
            chars: ran.full.text().chars().count() as u64,
            lines: ran.full.text().lines().count() as u64,
            spool: ran.spool,
            spool_bytes: ran.spool.map(|_| ran.full.kept_bytes()),
            marks: ran.marks.clone(),
            changed: ran.changed.clone(),
        };
        let output = Output::of(&done);
        self.parts.history.changed(&ran.changed);
        self.parts.session.append(Fact::Tool(Box::new(done)))?;
        if let Some(job) = &ran.job {
            let jobs = self.parts.world.exec.jobs();
            let command = jobs.into_iter().find(|one| one.id == *job).map_or(ran.summary.clone(), |one| one.command);
            self.parts.session.append(Fact::JobStarted { job: job.clone(), command })?;
        }
        if let Some(graph) = &ran.tasks {
            self.parts.session.append(Fact::Tasks { graph: graph.clone() })?;
        }
        self.say(Message::Tool {
            call_id: call.id.clone(),
            tool: ran.tool.clone(),
            text: ran.text.clone(),
            is_error: ran.status != ToolStatus::Ok,
        })?;
        self.parts.history.output(self.parts.session.last_entry(), output);
        Ok(())
    }

    fn recut(&mut self, id: &str, new: String) -> Result<(), SessionError> {
        self.parts.session.append(Fact::Recut { call_id: id.to_owned(), text: new.clone() })?;
        self.parts.history.recut(id, &new);
        Ok(())
    }
}

fn call_ended(error: CallError) -> Ended {
    match error {
        CallError::Halted { why, .. } => Ended::Halted(why),
        CallError::Session(error) => Ended::Session(error),
        other => Ended::Call(other),
    }
}

/// A call to its end; `None` when the run was halted first, and what the call started is ended. A draining run lets
/// it finish for `patience`.
async fn unless_halted(
    mut run: Pin<&mut impl Future<Output = Ran>>,
    halt: &Halt,
    world: &World,
    patience: Duration,
) -> Option<Ran> {
    let mut why = tokio::select! {
        biased;
        ran = &mut run => return Some(ran),
        why = halt.wait() => why,
    };
    if why == Why::Drain {
        tokio::select! {
            biased;
            ran = &mut run => return Some(ran),
            signal = halt.signalled() => why = signal,
            () = world.clock.sleep(patience) => return None,
        }
    }
    let grace = if matches!(why, Why::Signal(_)) { 5 } else { 1 };
    tokio::select! {
        biased;
        ran = &mut run => Some(ran),
        _ = world.exec.shutdown(Duration::from_secs(grace)) => None,
    }
}

/// `exited with 0`, `was killed`, …
fn job_state(state: &JobState) -> String {
    match state {
        JobState::Running => "is running".to_owned(),
        JobState::LeaderExited { status, still_running } => {
            format!("leader exited with {status}, {still_running} still running")
        }
        JobState::Exited(status) => format!("exited with {status}"),
        JobState::Signaled(signal) => format!("was ended by signal {signal}"),
        JobState::Killed => "was killed".to_owned(),
        JobState::TimedOut => "timed out".to_owned(),
        JobState::Lost => "was lost with its supervisor".to_owned(),
    }
}

/// How long a job ran; zero while it does.
fn job_took(job: &JobInfo) -> Duration {
    job.ended.and_then(|ended| ended.duration_since(job.started).ok()).unwrap_or_default()
}

fn job_exited(job: &JobInfo) -> Fact {
    let duration_ms = job_took(job).as_millis() as u64;
    Fact::JobExited { job: job.id.clone(), state: job_state(&job.state), duration_ms }
}

/// `job-1 exited with 0 after 5m23s; last line: …`.
fn job_line(job: &JobInfo) -> String {
    let mut text = format!("{} {}", job.id, job_state(&job.state));
    if job.ended.is_some() {
        let after = humantime::format_duration(Duration::from_secs(job_took(job).as_secs()));
        text.push_str(" after ");
        text.push_str(&after.to_string().replace(' ', ""));
    }
    if !job.last_line.is_empty() {
        text.push_str("; last line: ");
        text.push_str(&crate::tools::escape_line(job.last_line.as_bytes()));
    }
    text
}

impl Agent {
    /// Goes on where an earlier run ended: results of calls that were running or never started, and a word after an
    /// interruption. `in_turn`: a turn was under way, and its opening message was said. `last_text` becomes the last
    /// text of the agent.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn resume(&mut self, state: &State, in_turn: bool, last_text: &mut String) -> Result<(), SessionError> {
        self.parts.tools.restore(state.marks.clone(), state.tasks.clone());
        self.parts.tools.restore_jobs(state.last_job);
        self.parts.steering.borrow_mut().extend(state.steers.iter().cloned());
        for message in &state.recent {
            if let Message::Assistant { blocks, refused: None, .. } = message {
                let text = crate::model::blocks_text(blocks);
                if !text.trim().is_empty() {
                    *last_text = text;
                }
            }
            self.keep(message.clone());
        }
        for (block, started) in &state.dangling {
            let Block::Call { id, name, arguments } = block else { continue };
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() };
            let text = if *started {
                "[interrupted: the runner ended while this call ran; its effects are unknown. It was not run again.]"
            } else {
                "[not run: the runner ended before this call started]"
            };
            let (mut ran, took) = self.not_run(&call, text.to_owned());
            ran.status = ToolStatus::Interrupted;
            self.record(&call, &ran, took)?;
        }
        match last_step(state) {
            _ if !in_turn => {}
            LastStep::Open => {}
            LastStep::Cut => self.operator("You were interrupted here; go on.")?,
            LastStep::Over { end, complete, why } => {
                self.over = Some(TurnDone { end, last_text: last_text.clone(), complete, why });
            }
        }
        self.jobs_are_gone(&state.open_jobs)
    }

    /// Jobs end with their run: who started some and goes on in a later run must know.
    fn jobs_are_gone(&mut self, jobs: &[OpenJob]) -> Result<(), SessionError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = jobs
            .iter()
            .map(|job| match &job.ended {
                Some(state) => format!("{} ({}), which {state}", job.id, job.command),
                None => format!("{} ({})", job.id, job.command),
            })
            .collect();
        let before_call = self.parts.gateway.ledger(|ledger| ledger.next_n(Lane::Agent));
        // First the message: told twice is better than never.
        self.operator(format!(
            "The background jobs of the earlier run are gone with it: {}. Start again what you still need.",
            named.join("; ")
        ))?;
        for job in jobs {
            self.parts.session.append(Fact::Delivery { what: job.id.clone(), before_call })?;
        }
        Ok(())
    }
}

/// What the last messages of an unfinished turn mean for the next request.
enum LastStep {
    /// There is something to answer.
    Open,
    /// The agent spoke last, and was not through: a word must follow, since a request ends with what is to be answered.
    Cut,
    /// The reply that ended the turn is there; only the line that says so is missing.
    Over { end: TurnEnd, complete: Option<String>, why: Option<String> },
}

fn last_step(state: &State) -> LastStep {
    match state.unsent.last() {
        Some(Message::Assistant { interrupted: true, .. }) => LastStep::Cut,
        Some(Message::Assistant { refused: Some(why), .. }) => {
            LastStep::Over { end: TurnEnd::Refused, complete: None, why: Some(why.clone()) }
        }
        Some(Message::Assistant { blocks, .. }) if !blocks.iter().any(|block| matches!(block, Block::Call { .. })) => {
            let settled = state.calls.iter().rev().find(|(call, _)| call.lane == Lane::Agent);
            let stop = settled.and_then(|(_, settled)| settled.as_ref()).map(|settled| settled.stop.as_str());
            let silent = crate::model::blocks_text(blocks).trim().is_empty();
            match stop {
                // The provider goes on from the assistant's own message.
                Some("pause") => LastStep::Open,
                Some("end" | "stop_sequence") if !silent => {
                    LastStep::Over { end: TurnEnd::Done, complete: None, why: None }
                }
                _ => LastStep::Cut,
            }
        }
        Some(Message::Tool { .. }) => match completed(state) {
            complete @ Some(_) => LastStep::Over { end: TurnEnd::Done, complete, why: None },
            None => LastStep::Open,
        },
        _ => LastStep::Open,
    }
}

/// The summary of a `goal-complete` among the last reply's calls, when it was accepted.
fn completed(state: &State) -> Option<String> {
    let results = state.unsent.iter().rev().take_while(|message| matches!(message, Message::Tool { .. }));
    let id = results.into_iter().find_map(|message| match message {
        Message::Tool { call_id, tool, is_error: false, .. } if tool == GOAL_COMPLETE => Some(call_id),
        _ => None,
    })?;
    let calls = state.unsent.iter().rev().find_map(|message| match message {
        Message::Assistant { blocks, .. } => Some(blocks),
        _ => None,
    })?;
    let arguments = calls.iter().find_map(|block| match block {
        Block::Call { id: call, arguments, .. } if call == id => Some(arguments),
        _ => None,
    })?;
    let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
    Some(arguments.get("summary")?.as_str()?.to_owned())
}
