//! What the provider answers: content, and how the transport misbehaves while it is sent.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::request::Request;

/// Tokens as a whole reply reports them. `input` is the whole input, cached parts included, on both wires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    /// Anthropic wire only: the other one has no field for it.
    pub cache_write: u64,
    /// Anthropic wire only.
    pub cache_write_1h: u64,
    /// Part of `output`; chat wire only.
    pub reasoning: u64,
}

impl Usage {
    pub fn add(&mut self, other: Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.cache_write_1h += other.cache_write_1h;
        self.reasoning += other.reasoning;
    }
}

/// One block of a reply's content, in the order sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Text(String),
    Thinking {
        text: String,
        /// A made-up one when absent.
        signature: Option<String>,
    },
    Call {
        /// A made-up, unique one when absent; none at all when empty (chat wire).
        id: Option<String>,
        name: String,
        /// The exact text of the arguments.
        arguments: String,
    },
    /// Anthropic wire only: any other block, sent whole in its start event.
    Other(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum UsageReport {
    /// A quarter of a token a byte of the request and of the content.
    Computed,
    Nothing,
    Given(Usage),
}

/// Waits in the middle of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stall {
    /// After so many bytes of the body; absent: before the head.
    pub after_bytes: Option<usize>,
    /// Absent: until the client hangs up or the provider ends.
    pub time: Option<Duration>,
}

/// One answer to one request. It starts as a whole, well-formed stream; everything else is asked for.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) blocks: Vec<Block>,
    pub(super) stop: Option<String>,
    pub(super) usage: UsageReport,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) raw: Option<Vec<u8>>,
    pub(super) cut_after: Option<usize>,
    pub(super) reset: bool,
    pub(super) stall: Option<Stall>,
    pub(super) split: Option<usize>,
    pub(super) pace: Option<Duration>,
    pub(super) no_terminal: bool,
    pub(super) refuse_connection: bool,
    pub(super) overflow: Option<u64>,
    pub(super) gate: Option<Gate>,
}

impl Reply {
    /// A whole reply without content.
    pub fn empty() -> Reply {
        Reply {
            blocks: Vec::new(),
            stop: None,
            usage: UsageReport::Computed,
            status: 200,
            headers: Vec::new(),
            body: None,
            raw: None,
            cut_after: None,
            reset: false,
            stall: None,
            split: None,
            pace: None,
            no_terminal: false,
            refuse_connection: false,
            overflow: None,
            gate: None,
        }
    }

    pub fn text(text: &str) -> Reply {
        Reply::empty().and_text(text)
    }

    pub fn thinking(text: &str) -> Reply {
        Reply::empty().and_thinking(text)
    }

    pub fn call(name: &str, arguments: Value) -> Reply {
        Reply::empty().and_call(name, arguments)
    }

    pub fn bash(command: &str) -> Reply {
        Reply::call("bash", json!({"command": command}))
    }

    /// The agent's `goal-complete`.
    pub fn complete(summary: &str) -> Reply {
        Reply::call("goal-complete", json!({"summary": summary}))
    }

    /// The judge's forced call: `met`, `unmet` or `impossible` (or anything else, to be repaired).
    pub fn verdict(verdict: &str, reason: &str, next_step: &str) -> Reply {
        Reply::verdict_with(json!({"verdict": verdict, "reason": reason, "next_step": next_step, "criteria": []}))
    }

    pub fn verdict_with(arguments: Value) -> Reply {
        Reply::call("verdict", arguments)
    }

    /// The summarizer's answer, whole: its sections, the first of which holds the text.
    pub fn summary(text: &str) -> Reply {
        let rest = ["Decisions and findings", "Files modified", "Current state", "Next steps", "References"];
        let rest: Vec<String> = rest.iter().map(|name| format!("## {name}\nnone\n")).collect();
        Reply::text(&format!("## Goal\n{text}\n{}## Reasoning to carry forward\nnone", rest.concat()))
    }

    /// The model declines.
    pub fn refusal(text: &str) -> Reply {
        Reply::text(text).stop("refusal")
    }

    /// An HTTP error with the wire's usual body for that status.
    pub fn error(status: u16) -> Reply {
        Reply::empty().status(status)
    }

    /// The HTTP error of a request that does not fit a window of so many tokens, as the wire's vendor words it.
    pub fn overflow(window_tokens: u64) -> Reply {
        let mut reply = Reply::error(400);
        reply.overflow = Some(window_tokens);
        reply
    }

    /// The exact bytes of the event stream.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        let mut reply = Reply::empty();
        reply.raw = Some(bytes.into());
        reply
    }

    /// Resets the next connection as soon as it is there, before anything is read. The reply before it closes
    /// its own, so that there is a next one. Not a request: it is counted by `Provider::refused` alone.
    pub fn refuse_connection() -> Reply {
        let mut reply = Reply::empty();
        reply.refuse_connection = true;
        reply
    }

    pub fn and_text(mut self, text: &str) -> Reply {
        self.blocks.push(Block::Text(text.to_owned()));
        self
    }

    pub fn and_thinking(mut self, text: &str) -> Reply {
        self.blocks.push(Block::Thinking { text: text.to_owned(), signature: None });
        self
    }

    pub fn and_call(self, name: &str, arguments: Value) -> Reply {
        self.and_raw_call(name, &arguments.to_string())
    }

    /// A call whose arguments are any text, valid or not.
    pub fn and_raw_call(mut self, name: &str, arguments: &str) -> Reply {
        self.blocks.push(Block::Call { id: None, name: name.to_owned(), arguments: arguments.to_owned() });
        self
    }

    /// Anthropic wire: a block of any other type. The chat wire leaves it out.
    pub fn and_block(mut self, block: Value) -> Reply {
        self.blocks.push(Block::Other(block));
        self
    }

    /// The id of the last call.
    pub fn id(mut self, new: &str) -> Reply {
        match self.blocks.last_mut() {
            Some(Block::Call { id, .. }) => *id = Some(new.to_owned()),
            other => panic!("an id belongs to a call, not to {other:?}"),
        }
        self
    }

    /// `end`, `tool_use`, `max_tokens`, `stop_sequence`, `refusal`, `pause`, `context_exceeded` are translated to
    /// the wire's words; anything else is sent as it is. Derived from the content by default.
    pub fn stop(mut self, stop: &str) -> Reply {
        self.stop = Some(stop.to_owned());
        self
    }

    pub fn usage(self, input: u64, output: u64) -> Reply {
        self.usage_of(Usage { input, output, ..Usage::default() })
    }

    pub fn usage_of(mut self, usage: Usage) -> Reply {
        self.usage = UsageReport::Given(usage);
        self
    }

    pub fn no_usage(mut self) -> Reply {
        self.usage = UsageReport::Nothing;
        self
    }

    pub fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// A plain body instead of a stream.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Reply {
        self.body = Some(body.into());
        self
    }

    /// Closes the connection after so many bytes of the body (the event stream's own bytes, without framing).
    pub fn cut_after(mut self, bytes: usize) -> Reply {
        self.cut_after = Some(bytes);
        self
    }

    /// Resets the connection instead of an answer; with `cut_after`, in the middle of it.
    pub fn reset(mut self) -> Reply {
        self.reset = true;
        self
    }

    /// Never answers. Ends when the client hangs up or the provider ends.
    pub fn stall(self) -> Reply {
        self.stalled(None, None)
    }

    /// Answers late.
    pub fn stall_for(self, time: Duration) -> Reply {
        self.stalled(None, Some(time))
    }

    /// Sends so many bytes of the body and then nothing more.
    pub fn stall_after(self, bytes: usize) -> Reply {
        self.stalled(Some(bytes), None)
    }

    /// Pauses once after so many bytes of the body.
    pub fn stall_after_for(self, bytes: usize, time: Duration) -> Reply {
        self.stalled(Some(bytes), Some(time))
    }

    pub(super) fn stalled(mut self, after_bytes: Option<usize>, time: Option<Duration>) -> Reply {
        self.stall = Some(Stall { after_bytes, time });
        self
    }

    /// Writes the body in pieces of so many bytes, each in its own frame and its own write.
    pub fn split(mut self, bytes: usize) -> Reply {
        assert!(bytes > 0, "pieces have at least one byte");
        self.split = Some(bytes);
        self
    }

    /// Waits so long after each piece (each event, or what `split` says).
    pub fn pace(mut self, time: Duration) -> Reply {
        self.pace = Some(time);
        self
    }

    /// Ends the body cleanly, but without the events that end a reply.
    pub fn no_terminal(mut self) -> Reply {
        self.no_terminal = true;
        self
    }

    /// Waits for the gate before a byte is sent.
    pub fn held(mut self, gate: &Gate) -> Reply {
        self.gate = Some(gate.clone());
        self
    }

    /// The same for so many requests.
    pub fn repeat(self, times: u64) -> Step {
        Step { what: What::Fixed(Box::new(self)), times: Some(times) }
    }

    /// The same for all further requests of the lane.
    pub fn forever(self) -> Step {
        Step { what: What::Fixed(Box::new(self)), times: None }
    }
}

/// Makes a reply from the request that it answers.
pub type Respond = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

#[derive(Clone)]
pub(super) enum What {
    Fixed(Box<Reply>),
    Computed(Respond),
}

/// An entry of a script: one reply, or the same one several times.
#[derive(Clone)]
pub struct Step {
    pub(super) what: What,
    /// Absent: forever.
    pub(super) times: Option<u64>,
}

impl Step {
    pub fn repeat(mut self, times: u64) -> Step {
        self.times = Some(times);
        self
    }

    pub fn forever(mut self) -> Step {
        self.times = None;
        self
    }

    pub(super) fn refuses_connection(&self) -> bool {
        matches!(&self.what, What::Fixed(reply) if reply.refuse_connection)
    }
}

impl From<Reply> for Step {
    fn from(reply: Reply) -> Step {
        reply.repeat(1)
    }
}

/// A reply that the test computes from the request.
pub fn respond_with(respond: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Step {
    Step { what: What::Computed(Arc::new(respond)), times: Some(1) }
}

/// Holds replies until the test releases them, for good.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    open: bool,
    held: usize,
}

impl Gate {
    pub fn new() -> Gate {
        Gate::default()
    }

    pub fn release(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.0.1.notify_all();
    }

    /// Waits until a reply stands at the gate. Panics after `timeout`.
    #[track_caller]
    pub fn wait_until_held(&self, timeout: Duration) {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = self
            .0
            .1
            .wait_timeout_while(state, timeout, |state| state.held == 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(state.held > 0, "no reply stood at the gate within {timeout:?}");
    }

    /// Waits for the release; false when `gone` said so first.
    pub(super) fn pass(&self, gone: impl Fn() -> bool) -> bool {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.held += 1;
        self.0.1.notify_all();
        let look_again = Duration::from_millis(10);
        while !state.open && !gone() {
            state = self.0.1.wait_timeout(state, look_again).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.held -= 1;
        state.open
    }
}

/// What became of an answer.
#[derive(Debug, Clone)]
pub struct Served {
    /// The request's numbers, as `Request` has them.
    pub n: usize,
    pub lane: super::request::Lane,
    pub lane_n: usize,
    /// Absent when no head was sent.
    pub status: Option<u16>,
    /// What a whole stream reported.
    pub usage: Option<Usage>,
    /// Every byte was handed to the network, the last ones too.
    pub whole: bool,
    /// Bytes of the body that were sent, without framing.
    pub body_bytes: usize,
    pub finished: Instant,
}
