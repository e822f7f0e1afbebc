//! What a provider will answer, lane by lane: built in Rust by tests, or read from a YAML or JSON file.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::check::Rules;
use super::reply::{Block, Reply, Step, Usage, UsageReport};
use super::request::{Lane, Request};
use super::server::{Hook, Provider};

/// Tells the lane where the request does not by itself; `None` leaves it at that.
pub type LaneOf = Arc<dyn Fn(&Value) -> Option<Lane> + Send + Sync>;

/// Replies and rules of one provider.
pub struct Script {
    pub(super) agent: VecDeque<Step>,
    pub(super) judge: VecDeque<Step>,
    pub(super) summarizer: VecDeque<Step>,
    pub(super) rules: Rules,
    pub(super) lane_of: Option<LaneOf>,
    pub(super) light: bool,
    pub(super) keep_bodies: bool,
    pub(super) hooks: Vec<Hook>,
}

impl Script {
    pub fn new() -> Script {
        Script {
            agent: VecDeque::new(),
            judge: VecDeque::new(),
            summarizer: VecDeque::new(),
            rules: Rules::default(),
            lane_of: None,
            light: false,
            keep_bodies: true,
            hooks: Vec::new(),
        }
    }

    /// The agent's next reply.
    pub fn agent(mut self, step: impl Into<Step>) -> Script {
        self.agent.push_back(step.into());
        self
    }

    /// The judge's next reply.
    pub fn judge(mut self, step: impl Into<Step>) -> Script {
        self.judge.push_back(step.into());
        self
    }

    /// The summarizer's next reply.
    pub fn summarizer(mut self, step: impl Into<Step>) -> Script {
        self.summarizer.push_back(step.into());
        self
    }

    /// Requests may carry any key: the script looks at it itself.
    pub fn any_key(mut self) -> Script {
        self.rules.any_key = true;
        self
    }

    /// Every request must carry this key, and none may contain it elsewhere. Without it, none may carry any.
    pub fn key(mut self, key: &str) -> Script {
        self.rules.key = Some(key.to_owned());
        self
    }

    /// No request may contain this text.
    pub fn secret(mut self, secret: &str) -> Script {
        assert!(!secret.is_empty(), "an empty secret is contained in everything");
        self.rules.secrets.push(secret.to_owned());
        self
    }

    /// Agent requests need not continue earlier ones.
    pub fn allow_rewrite(self) -> Script {
        self.allow_rewrites(u64::MAX)
    }

    /// So many agent requests need not continue an earlier one.
    pub fn allow_rewrites(mut self, times: u64) -> Script {
        self.rules.rewrites = times;
        self
    }

    /// All agent requests are of one session, resumes included: without it, a request that has no assistant
    /// message yet and continues none starts a session of its own.
    pub fn one_session(mut self) -> Script {
        self.rules.one_session = true;
        self
    }

    /// The history may hold thinking that another provider sent.
    pub fn foreign_history(mut self) -> Script {
        self.rules.foreign_history = true;
        self
    }

    /// Tells lanes by the test's own rule where it gives one.
    pub fn lane_of(mut self, lane_of: impl Fn(&Value) -> Option<Lane> + Send + Sync + 'static) -> Script {
        self.lane_of = Some(Arc::new(lane_of));
        self
    }

    /// For measuring: requests are neither checked nor kept, only counted.
    pub fn light(mut self) -> Script {
        self.light = true;
        self
    }

    /// Requests are checked and shown to whoever computes their replies, but neither bodies nor headers are kept.
    pub fn forget_bodies(mut self) -> Script {
        self.keep_bodies = false;
        self
    }

    /// Runs when the n-th request (of all, from 1) has arrived, before it is answered.
    pub fn on_request(mut self, n: usize, run: impl FnOnce(&Request) + Send + 'static) -> Script {
        self.hooks.push(Hook { lane: None, n, run: Box::new(run) });
        self
    }

    /// Runs when the lane's n-th request (from 1) has arrived, before it is answered.
    pub fn on_lane_request(mut self, lane: Lane, n: usize, run: impl FnOnce(&Request) + Send + 'static) -> Script {
        self.hooks.push(Hook { lane: Some(lane), n, run: Box::new(run) });
        self
    }

    /// Starts the provider on a free loopback port.
    #[track_caller]
    pub fn start(self) -> Provider {
        self.start_on(0)
    }

    /// Starts the provider on that loopback port.
    #[track_caller]
    pub fn start_on(self, port: u16) -> Provider {
        self.serve(port).unwrap_or_else(|error| panic!("no provider on port {port}: {error}"))
    }

    /// Starts the provider on that loopback port (0: a free one), or says why not.
    pub fn serve(self, port: u16) -> std::io::Result<Provider> {
        Provider::start(self, port)
    }

    /// Reads a script file; JSON when its name ends so, else YAML.
    pub fn from_file(path: &Path) -> Result<Script, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let json = path.extension().is_some_and(|extension| extension == "json");
        let script = if json { Script::from_json(&text) } else { Script::from_yaml(&text) };
        script.map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn from_yaml(text: &str) -> Result<Script, String> {
        Script::from_value(serde_yaml::from_str(text).map_err(|error| error.to_string())?)
    }

    pub fn from_json(text: &str) -> Result<Script, String> {
        Script::from_value(serde_json::from_str(text).map_err(|error| error.to_string())?)
    }

    fn from_value(value: Value) -> Result<Script, String> {
        let file: FileForm = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let lane = |name: &str, items: Vec<Value>| -> Result<VecDeque<Step>, String> {
            let steps = items.into_iter().enumerate();
            steps.map(|(i, item)| step(item).map_err(|error| format!("{name}[{i}]: {error}"))).collect()
        };
        let mut script = Script::new();
        script.agent = lane("agent", file.agent)?;
        script.judge = lane("judge", file.judge)?;
        script.summarizer = lane("summarizer", file.summarizer)?;
        script.rules = Rules {
            key: file.key,
            any_key: false,
            secrets: file.secrets,
            one_session: file.one_session,
            rewrites: if file.allow_rewrite { u64::MAX } else { 0 },
            foreign_history: file.foreign_history,
        };
        script.light = file.light;
        Ok(script)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct FileForm {
    agent: Vec<Value>,
    judge: Vec<Value>,
    summarizer: Vec<Value>,
    key: Option<String>,
    secrets: Vec<String>,
    allow_rewrite: bool,
    one_session: bool,
    foreign_history: bool,
    light: bool,
}

/// One reply of a file. A plain text is a reply with that text.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ReplyForm {
    thinking: Option<ThinkingForm>,
    text: Option<String>,
    calls: Vec<CallForm>,
    /// Shorthands for one call: the command of `bash`, the summary of `goal-complete`, a verdict.
    bash: Option<String>,
    complete: Option<String>,
    verdict: Option<String>,
    reason: Option<String>,
    next_step: Option<String>,
    criteria: Option<Value>,
    /// Anthropic wire: further blocks, as they are.
    blocks: Vec<Value>,
    stop: Option<String>,
    usage: Option<UsageForm>,
    status: Option<u16>,
    /// A text, or any JSON.
    body: Option<Value>,
    headers: BTreeMap<String, Scalar>,
    raw: Option<String>,
    overflow: Option<u64>,
    cut_after_bytes: Option<usize>,
    reset: bool,
    /// `true`, or milliseconds.
    stall: Option<StallForm>,
    stall_after_bytes: Option<usize>,
    split: Option<usize>,
    pace_ms: Option<u64>,
    no_terminal: bool,
    refuse_connection: bool,
    repeat: Option<RepeatForm>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ThinkingForm {
    Text(String),
    Signed { text: String, signature: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallForm {
    name: String,
    /// An object, or the exact text.
    #[serde(default)]
    arguments: Value,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UsageForm {
    Word(String),
    Given(Usage),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StallForm {
    Switch(bool),
    Milliseconds(u64),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RepeatForm {
    Times(u64),
    Word(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
}

fn step(item: Value) -> Result<Step, String> {
    if let Value::String(text) = item {
        return Ok(Reply::text(&text).into());
    }
    let mut form: ReplyForm = serde_json::from_value(item).map_err(|error| error.to_string())?;
    let repeat = form.repeat.take();
    let reply = reply(form)?;
    match repeat {
        None => Ok(reply.into()),
        Some(RepeatForm::Times(0)) => Err("`repeat` is a number from 1 or `forever`".to_owned()),
        Some(RepeatForm::Times(times)) => Ok(reply.repeat(times)),
        Some(RepeatForm::Word(word)) if word == "forever" => Ok(reply.forever()),
        Some(RepeatForm::Word(word)) => Err(format!("`repeat` is a number from 1 or `forever`, not {word:?}")),
    }
}

fn reply(form: ReplyForm) -> Result<Reply, String> {
    let mut reply = Reply::empty();
    match form.thinking {
        Some(ThinkingForm::Text(text)) => reply = reply.and_thinking(&text),
        Some(ThinkingForm::Signed { text, signature }) => {
            reply.blocks.push(Block::Thinking { text, signature: Some(signature) });
        }
        None => {}
    }
    reply.blocks.extend(form.blocks.into_iter().map(Block::Other));
    if let Some(text) = form.text {
        reply = reply.and_text(&text);
    }
    for CallForm { name, arguments, id } in form.calls {
        let arguments = match arguments {
            Value::String(text) => text,
            Value::Null => "{}".to_owned(),
            other => other.to_string(),
        };
        reply.blocks.push(Block::Call { id, name, arguments });
    }
    if let Some(command) = form.bash {
        reply = reply.and_call("bash", json!({"command": command}));
    }
    if let Some(summary) = form.complete {
        reply = reply.and_call("goal-complete", json!({"summary": summary}));
    }
    match form.verdict {
        Some(verdict) => {
            let arguments = json!({
                "verdict": verdict,
                "reason": form.reason.unwrap_or_default(),
                "next_step": form.next_step.unwrap_or_default(),
                "criteria": form.criteria.unwrap_or_else(|| json!([])),
            });
            reply = reply.and_call("verdict", arguments);
        }
        None if form.reason.is_some() || form.next_step.is_some() || form.criteria.is_some() => {
            return Err("`reason`, `next_step` and `criteria` belong to a `verdict`".to_owned());
        }
        None => {}
    }
    reply.stop = form.stop;
    reply.usage = match form.usage {
        None => UsageReport::Computed,
        Some(UsageForm::Given(usage)) => UsageReport::Given(usage),
        Some(UsageForm::Word(word)) if word == "none" => UsageReport::Nothing,
        Some(UsageForm::Word(word)) => return Err(format!("`usage` is `none` or a map, not {word:?}")),
    };
    reply.overflow = form.overflow;
    reply.status = form.status.unwrap_or(if form.overflow.is_some() { 400 } else { 200 });
    if !(200..=599).contains(&reply.status) {
        return Err(format!("`status` {} is no final HTTP status", reply.status));
    }
    reply.body = form.body.map(|body| match body {
        Value::String(text) => text.into_bytes(),
        other => other.to_string().into_bytes(),
    });
    reply.headers = form
        .headers
        .into_iter()
        .map(|(name, value)| match value {
            Scalar::Text(text) => (name.to_ascii_lowercase(), text),
            Scalar::Number(number) => (name.to_ascii_lowercase(), number.to_string()),
        })
        .collect();
    reply.raw = form.raw.map(String::into_bytes);
    reply.cut_after = form.cut_after_bytes;
    reply.reset = form.reset;
    reply = match (form.stall, form.stall_after_bytes) {
        (None | Some(StallForm::Switch(false)), None) => reply,
        (None | Some(StallForm::Switch(false)), Some(_)) => {
            return Err("`stall_after_bytes` belongs to a `stall`".to_owned());
        }
        (Some(StallForm::Switch(true)), after) => reply.stalled(after, None),
        (Some(StallForm::Milliseconds(ms)), after) => reply.stalled(after, Some(Duration::from_millis(ms))),
    };
    if form.split == Some(0) {
        return Err("`split` is a number of bytes from 1".to_owned());
    }
    reply.split = form.split;
    reply.pace = form.pace_ms.map(Duration::from_millis);
    reply.no_terminal = form.no_terminal;
    reply.refuse_connection = form.refuse_connection;
    Ok(reply)
}
