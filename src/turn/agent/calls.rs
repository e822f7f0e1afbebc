//! The tool calls of a reply: run one after another, each logged before it runs and after.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::super::nudge::Repeat;
use super::super::results;
use super::{Agent, Ended, Turn, TurnDone};
use crate::event::{ToolStatus, TurnEnd};
use crate::session::{Fact, Message, Output, SessionError, ToolDone, ToolStart};
use crate::tools::{PLAN_UPDATED, Ran, ToolCall, Whole};
use crate::world::{Halt, Why, World};

/// Most tool calls of one reply that are run.
const MOST_CALLS: usize = 32;

/// A running tool call may finish for so long when the run drains.
const DRAIN_FOR: Duration = Duration::from_secs(60);

/// What the model reads of a call that was running when the run was stopped.
const INTERRUPTED: &str = "[interrupted: the run was stopped while this call ran; its effects are unknown]";

const WAIT_STOPPED: &str = "[interrupted: the run was stopped during this wait]";

impl Agent {
    pub(super) async fn run_calls(&mut self, turn: &mut Turn, calls: &[ToolCall]) -> Result<Option<TurnDone>, Ended> {
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
        for (index, text) in self.shorter(&mut results).await {
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

    pub(super) fn not_run(&self, call: &ToolCall, text: String) -> (Ran, Duration) {
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
        if self.parts.tools.changes(call) {
            (self.parts.changed)(&call.id, &ran);
        }
        if halt.why().is_some_and(|why| why != Why::Drain) && self.parts.tools.changes(call) {
            ran.status = ToolStatus::Interrupted;
            if ran.text != INTERRUPTED {
                ran.text = format!("{}\n{INTERRUPTED}", ran.text.trim_end());
            }
        }
        Ok((ran, world.clock.elapsed().saturating_sub(started)))
    }

    /// Logs a call's end, and its result as the message it becomes.
    pub(super) fn record(&mut self, call: &ToolCall, ran: &Ran, took: Duration) -> Result<(), SessionError> {
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
        let mut facts = vec![Fact::Tool(Box::new(done))];
        if let Some(job) = &ran.job {
            let jobs = self.parts.world.exec.jobs();
            let command = jobs.into_iter().find(|one| one.id == *job).map_or(ran.summary.clone(), |one| one.command);
            facts.push(Fact::JobStarted { job: job.clone(), command });
        }
        if let Some(graph) = &ran.tasks {
            facts.push(Fact::Tasks { graph: graph.clone() });
        }
        let result = Message::Tool {
            call_id: call.id.clone(),
            tool: ran.tool.clone(),
            text: ran.text.clone(),
            is_error: ran.status != ToolStatus::Ok,
        };
        self.say_after(facts, result)?;
        self.parts.history.output(self.parts.session.last_entry(), output);
        Ok(())
    }

    /// The results that together are too large, cut further.
    async fn shorter(&self, results: &mut [Ran]) -> Vec<(usize, String)> {
        let (window, factor) = (self.parts.endpoint.window_tokens, self.parts.conversation.factor());
        let shorter = results::together(results, window, factor);
        let spool = self.parts.session.spool();
        let mut named = false;
        for (index, _) in &shorter {
            // What was whole until now has not waited for its file. A run that is stopped waits for none.
            named |= self.parts.halt.run(results[*index].filed(&spool)).await == Ok(true);
        }
        if named { results::together(results, window, factor) } else { shorter }
    }

    fn recut(&mut self, id: &str, new: String) -> Result<(), SessionError> {
        self.parts.session.append(Fact::Recut { call_id: id.to_owned(), text: new.clone() })?;
        self.parts.history.recut(id, &new);
        Ok(())
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
