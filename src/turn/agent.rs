//! The agent of a session: its history, its steps, its tools.

mod calls;
mod jobs;
mod resume;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use self::jobs::{job_exited, job_line};
use super::nudge::Repeats;
use crate::compact::{Compactor, History, Overflow, Place};
use crate::event::{Event, Lane, TurnEnd};
use crate::model::{Ask, CallError, Conversation, Endpoint, Gateway, ModelError, Reply, Stop};
use crate::session::{Fact, Message, Origin, Session, SessionError, Spool};
use crate::tools::{Ran, ToolCall, Tools};
use crate::world::{Boxed, Halt, JobState, Roots, Why, World};

/// Replies in a row that may be cut at the output cap.
const MOST_CUTS: u32 = 3;
/// Nudges for replies without text and call.
const MOST_SILENT: u32 = 2;
/// Steps with open tasks and no `todo-write` before the reminder.
const STALE_TASKS_AFTER: u64 = 20;
/// The tool that says that the goal is reached.
const GOAL_COMPLETE: &str = "goal-complete";

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

/// Hears the id of a call, and what it gave.
pub type Changed = Rc<dyn Fn(&str, &Ran)>;

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
    /// Told each call that can have changed the workspace, when it is over.
    pub changed: Changed,
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
        self.say_after(Vec::new(), message)
    }

    /// Logs facts and the message that follows from them, together, and keeps it for the next request.
    fn say_after(&mut self, mut facts: Vec<Fact>, message: Message) -> Result<(), SessionError> {
        facts.push(Fact::Message(message.clone()));
        let entry = self.parts.session.append_all(facts)?;
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
            let delivery = Fact::Delivery { what: "steer".to_owned(), before_call };
            self.say_after(vec![delivery], Message::User { origin: Origin::Steer, text })?;
        }
        for job in self.parts.world.exec.jobs() {
            if !self.is_news(&job) {
                continue;
            }
            let text = job_line(&job);
            let mut facts = Vec::new();
            if !job.state.alive() {
                facts.extend([job_exited(&job), Fact::Delivery { what: job.id.clone(), before_call }]);
            }
            self.say_after(facts, Message::User { origin: Origin::Job, text })?;
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
}

fn call_ended(error: CallError) -> Ended {
    match error {
        CallError::Halted { why, .. } => Ended::Halted(why),
        CallError::Session(error) => Ended::Session(error),
        other => Ended::Call(other),
    }
}
