//! The key table of `goal.yaml`, version 1: names, kinds, defaults, and what each key is for.
//!
//! The strict reader, the layers, the JSON Schema and «did you mean» all read this one table, so none of them can
//! know a key that the others do not.

/// One key of a map.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// As YAML. Only keys that stand at the end of a layered path (`limits.cost`) and those of checks have one.
    pub default: Option<&'static str>,
    pub required: bool,
    pub about: &'static str,
}

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, default: None, required: false, about }
}

const fn later(name: &'static str, about: &'static str) -> Key {
    key(name, Kind::Later(&[]), about)
}

impl Key {
    const fn or(self, default: &'static str) -> Key {
        Key { default: Some(default), ..self }
    }

    const fn required(self) -> Key {
        Key { required: true, ..self }
    }
}

/// What a key takes.
#[derive(Debug)]
pub(super) enum Kind {
    Version,
    Bool,
    /// A whole number within bounds, and odd where that is asked.
    Whole {
        min: u64,
        max: u64,
        odd: bool,
    },
    /// A number of tokens, at least 1, or `unlimited`.
    Tokens,
    /// A duration with a unit. `zero`: may be `0s`.
    Time {
        unlimited: bool,
        zero: bool,
    },
    /// A number of bytes with a unit, above 0.
    Size,
    /// Dollars as a decimal above 0, or `unlimited`.
    Money,
    /// Dollars per million tokens, 0 allowed.
    Price,
    /// One of these words; the later ones are known and refused.
    Word {
        now: &'static [&'static str],
        later: &'static [&'static str],
    },
    /// Letters, digits, dots, dashes, underscores.
    Slug,
    /// One line of text.
    Line,
    /// The goal's text, or `{file: PATH}`.
    Goal,
    /// A path to a folder or file, relative to the file that names it.
    Path,
    /// A path below the workspace.
    Inside,
    /// A glob of paths below the workspace.
    Glob,
    /// `all`, `none`, or a list of ports.
    Network,
    /// The name of an environment variable.
    Variable,
    /// A glob of such names.
    VariableGlob,
    /// The name of a tool. `later`: tools to come may be named too (denying them is harmless).
    Tool {
        later: bool,
    },
    /// An http or https URL without credentials.
    Url,
    /// `provider/model`.
    ModelId,
    /// `provider/model`, a map of [`MODEL`], or `{cassette: FILE}`.
    Model,
    /// A text for bash, or an argument list.
    Run,
    /// A map of [`CHECK`], or its `run` as text.
    Check,
    List {
        of: &'static Kind,
        most: usize,
    },
    /// A closed map. Its keys are layered one by one.
    Map(&'static [Key]),
    /// `off`, or a closed map.
    OffOr(&'static [Key]),
    /// A closed map that is one value: the higher layer replaces the whole of it.
    Record(&'static [Key]),
    /// Names of the writer's choice, each with a value of one kind.
    Named {
        names: Names,
        of: &'static Kind,
    },
    /// The text of a header, a query parameter or a variable: numbers are taken as written.
    Plain,
    /// Anything that JSON can say.
    Json,
    /// Known, and refused in this version; with the keys below it.
    Later(&'static [Key]),
}

/// What the names of a [`Kind::Named`] map may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Provider,
    ModelId,
    Variable,
    Header,
    Parameter,
    /// A field of the request body that spettro does not write itself.
    Field,
}

const fn whole(min: u64, max: u64) -> Kind {
    Kind::Whole { min, max, odd: false }
}

const TIME: Kind = Kind::Time { unlimited: false, zero: false };
const TIME_OR_UNLIMITED: Kind = Kind::Time { unlimited: true, zero: false };
const WIRE: Kind = Kind::Word { now: &["anthropic", "openai-responses", "openai-chat", "gemini"], later: &[] };
const HEADERS: Kind = Kind::Named { names: Names::Header, of: &Kind::Plain };
const ENV_HEADERS: Kind = Kind::Named { names: Names::Header, of: &Kind::Variable };
const QUERY: Kind = Kind::Named { names: Names::Parameter, of: &Kind::Plain };
const EXTRA_BODY: Kind = Kind::Named { names: Names::Field, of: &Kind::Json };
const VARIABLES: Kind = Kind::Named { names: Names::Variable, of: &Kind::Plain };
const MOST_TOKENS: u64 = 1_000_000_000;

/// The map form of a model.
pub(super) const MODEL: &[Key] = &[
    key("id", Kind::Line, "`provider/model`, or the model's name alone when `provider` is given"),
    key("provider", Kind::Slug, "the provider that serves it"),
    key("wire", WIRE, "the protocol that the endpoint speaks"),
    key("base_url", Kind::Url, "the endpoint, as the vendor's own clients take it"),
    key("api_key_env", Kind::Variable, "the variable that holds the key; without one an own endpoint is keyless"),
    key("context_window", whole(1, MOST_TOKENS), "tokens that fit into one request and its reply"),
    key("max_output_tokens", whole(1, MOST_TOKENS), "most tokens of one reply"),
    key("reasoning_effort", Kind::Slug, "how hard the model thinks, in its provider's own words"),
    key("headers", HEADERS, "sent with every request"),
    key("query_params", QUERY, "added to the URL of every request"),
    key("extra_body", EXTRA_BODY, "added to the body of every request"),
    key("like", Kind::ModelId, "the `provider/model` whose window, limits and prices are borrowed"),
    key("idle_timeout", TIME, "longest silence inside a reply (120s)"),
    key("first_event_timeout", TIME, "longest wait for the first word of a reply (300s)"),
    key("cassette", Kind::Path, "a recorded session whose replies are the model; stands alone"),
];

/// The map form of a check.
pub(super) const CHECK: &[Key] = &[
    key("name", Kind::Line, "shown everywhere; unique (default: the command)"),
    key("run", Kind::Run, "text for `bash -euo pipefail -c`, or an argument list").required(),
    key("cwd", Kind::Inside, "where it runs, relative to the workspace").or("."),
    key("timeout", TIME, "after it the whole process tree is ended and the check has not passed").or("10m"),
    key("expect", whole(0, 255), "the exit code that passes").or("0"),
    key(
        "when",
        Kind::Word { now: &["start", "each_iteration", "before_judge"], later: &[] },
        "`start`: at the baseline, as a fact only; `before_judge`: after all other required ones pass",
    )
    .or("each_iteration"),
    key("required", Kind::Bool, "whether the goal can be met without it").or("true"),
    key("env", VARIABLES, "variables of this check alone"),
];

/// An own endpoint.
const PROVIDER: &[Key] = &[
    key("wire", WIRE, "the protocol that the endpoint speaks").required(),
    key("base_url", Kind::Url, "the endpoint, as the vendor's own clients take it").required(),
    key("api_key_env", Kind::Variable, "the variable that holds the key; without one the endpoint is keyless"),
    key("api_key_file", Kind::Path, "the file that holds the key; read again when the key is refused"),
    key("api_key_command", Kind::Run, "the command that prints the key; run again when the key is refused"),
    key("headers", HEADERS, "sent with every request"),
    key("env_http_headers", ENV_HEADERS, "headers whose values stand in the variables named here"),
    key("query_params", QUERY, "added to the URL of every request"),
    key("extra_body", EXTRA_BODY, "added to the body of every request"),
    key("ca_file", Kind::Path, "certificates (PEM) to trust beside the machine's own"),
];

/// Dollars per million tokens of one model.
const PRICE: &[Key] = &[
    key("input", Kind::Price, "input that is not cached").required(),
    key("output", Kind::Price, "output, reasoning included").required(),
    key("cache_read", Kind::Price, "input read from the provider's cache (default: as input)"),
    key("cache_write", Kind::Price, "input written to that cache (default: as input)"),
    key("cache_write_1h", Kind::Price, "input written to it for an hour (default: as cache_write)"),
];

const JUDGE: &[Key] = &[
    key("model", Kind::Model, "the model that judges (default: `model`)"),
    key("messages", whole(1, 1_000), "the last messages that it is shown").or("10"),
    key("timeout", TIME, "longest time for one call").or("2m"),
    key("retries", whole(0, 10), "repairs of a reply that is no verdict").or("2"),
    key("votes", Kind::Whole { min: 1, max: 9, odd: true }, "calls a verdict; the majority decides").or("1"),
];

const LIMITS: &[Key] = &[
    key("iterations", whole(1, 100_000), "turns of the agent").or("20"),
    key("steps", whole(1, 10_000_000), "model calls of the agent").or("500"),
    key("steps_per_iteration", whole(1, 1_000_000), "model calls within one turn").or("200"),
    key("cost", Kind::Money, "dollars, all model calls together").or("5.00"),
    key("tokens", Kind::Tokens, "input and output, all model calls together").or("unlimited"),
    key("time", TIME_OR_UNLIMITED, "time at work; waits for a provider do not count").or("2h"),
    key("idle", TIME_OR_UNLIMITED, "time in which nothing at all runs").or("15m"),
    key("command", TIME, "one command of the agent").or("10m"),
    key("stall", whole(1, 1_000), "iterations without progress before the nudge").or("3"),
    key("consecutive_errors", whole(1, 1_000), "failed or refused turns in a row").or("3"),
];

/// A port that may be reached.
pub(super) const PORT: Kind = whole(1, 65_535);
/// Instead of a list of them.
pub(super) const NETWORK_WORDS: Kind = Kind::Word { now: &["all", "none"], later: &[] };

/// The whole file.
pub(super) const GOAL: &[Key] = &[
    key("version", Kind::Version, "the version of this format; this build reads 1").required(),
    key("name", Kind::Slug, "how the goal is called (default: the file's name)"),
    key("goal", Kind::Goal, "what is to be reached, at most 64 KiB; frozen at the start").required(),
    key("criteria", Kind::List { of: &Kind::Line, most: 50 }, "what the judge answers one by one").or("[]"),
    key("workspace", Kind::Path, "the folder to work in, relative to this file").or("."),
    key(
        "workspace_mode",
        Kind::Word { now: &["in_place", "copy"], later: &["worktree"] },
        "`in_place` works in the workspace itself, `copy` in a private copy of it",
    )
    .or("in_place"),
    key("setup", Kind::List { of: &Kind::Run, most: 50 }, "commands that run before the first check").or("[]"),
    key("model", Kind::Model, "the agent's model: `provider/model`, a map, or `{cassette: FILE}`").required(),
    key("judge", Kind::OffOr(JUDGE), "the model that says whether the goal is met, or `off`"),
    key(
        "summarizer",
        Kind::Map(&[key("model", Kind::Model, "the model that writes summaries (default: `model`)")]),
        "who sums up what no longer fits the window",
    ),
    key(
        "checks",
        Kind::List { of: &Kind::Check, most: 100 },
        "commands that spettro runs itself; a bare text is `run`",
    )
    .or("[]"),
    key("skip_if_met", Kind::Bool, "when all required checks pass at the start, ask for the verdict at once")
        .or("false"),
    key("protect", Kind::List { of: &Kind::Glob, most: 200 }, "paths that the agent must not change").or("[]"),
    key("limits", Kind::Map(LIMITS), "bounds of the whole session, resumes included"),
    key(
        "compaction",
        Kind::Map(&[
            key("auto", Kind::Bool, "compact before a request is too large, not only when it was refused").or("true"),
            key("threshold_pct", whole(50, 95), "how full the window may be, in percent").or("85"),
            key("max_failures", whole(1, 1_000), "failed summaries in a row after which it pauses").or("3"),
        ]),
        "how a full context window is made smaller",
    ),
    key(
        "rate_limit",
        Kind::Map(&[key(
            "max_wait",
            Kind::Time { unlimited: false, zero: true },
            "longest wait for a provider that refuses or is down",
        )
        .or("30m")]),
        "what happens when a provider has no room",
    ),
    key(
        "instructions",
        Kind::List { of: &Kind::Inside, most: 20 },
        "files of the workspace that the agent is given at the start, 32 KiB together",
    )
    .or("[AGENTS.md, SPETTRO.md]"),
    key(
        "tools",
        Kind::Map(&[
            key(
                "allow",
                Kind::List { of: &Kind::Tool { later: false }, most: 50 },
                "only these (default: all but `web-fetch`)",
            ),
            key("deny", Kind::List { of: &Kind::Tool { later: true }, most: 50 }, "none of these").or("[]"),
            key(
                "web_private",
                Kind::Bool,
                "whether `web-fetch` reaches addresses of this machine and of private networks",
            )
            .or("false"),
        ]),
        "which tools the agent has",
    ),
    key(
        "sandbox",
        Kind::Map(&[
            key(
                "files",
                Kind::Word { now: &["workspace-write", "read-only", "off"], later: &[] },
                "what may be written; `off` restricts neither writing nor reading",
            )
            .or("workspace-write"),
            key("network", Kind::Network, "what may be reached: `all`, `none`, or a list of TCP ports").or("all"),
            key("write", Kind::List { of: &Kind::Path, most: 200 }, "further paths to write").or("[]"),
            key("read", Kind::List { of: &Kind::Path, most: 200 }, "further paths to read").or("[]"),
        ]),
        "what commands may touch; with any of it written, what this system cannot keep ends the run",
    ),
    key(
        "env",
        Kind::Map(&[
            key(
                "pass",
                Kind::List { of: &Kind::VariableGlob, most: 200 },
                "variables that commands see although they look like secrets",
            )
            .or("[]"),
            key("set", VARIABLES, "variables set for every command").or("{}"),
            key("clean", Kind::Bool, "commands see a short strict list only, with `pass` and `set`").or("false"),
        ]),
        "the environment of commands",
    ),
    key(
        "leftovers",
        Kind::Word { now: &["stop", "run"], later: &[] },
        "what becomes of processes that a command leaves behind; `run` keeps them until the run ends",
    )
    .or("stop"),
    later("memory", "what is remembered from session to session"),
    later("checkpoint", "how often the workspace's content is kept"),
    key(
        "record",
        Kind::Word { now: &["effects"], later: &[] },
        "`effects` also writes down what each step does to the files, so that a replay can follow them",
    ),
    later("commit", "when the workspace's changes are committed"),
    key(
        "on_start",
        Kind::Later(&[later("run", "the command"), later("env", "its variables"), later("timeout", "its time")]),
        "a command at the start of the run",
    ),
    key(
        "on_end",
        Kind::Later(&[later("run", "the command"), later("env", "its variables"), later("timeout", "its time")]),
        "a command at the end of the run",
    ),
    later("matrix", "the goal once for each combination"),
    later("repeat", "the goal so many times"),
    key(
        "retries",
        Kind::Later(&[later("count", "how often"), later("on", "after what"), later("delay", "how long after")]),
        "the goal again after an outcome that may change by itself",
    ),
    key("spool_max", Kind::Size, "most that the kept outputs of a session may take on disk; the oldest go first")
        .or("1GiB"),
    key("session_location", Kind::Word { now: &["home"], later: &["project"] }, "where the session is stored")
        .or("home"),
    key("sync", Kind::Word { now: &["step", "strict"], later: &[] }, "`strict` waits for the disk before each command")
        .or("step"),
    key("providers", Kind::Named { names: Names::Provider, of: &Kind::Record(PROVIDER) }, "own endpoints, by name"),
    key(
        "prices",
        Kind::Named { names: Names::ModelId, of: &Kind::Record(PRICE) },
        "dollars per million tokens, by `provider/model`",
    ),
    key("redact", Kind::List { of: &Kind::Variable, most: 200 }, "variables whose values are secrets too").or("[]"),
];

/// The keys that a project's own `.spettro/config.yaml` may hold.
pub(super) const PROJECT_KEYS: &[&str] = &["version", "name", "instructions", "compaction"];

/// The names of the tools, and of those to come.
pub(super) const TOOLS: &[&str] = &[
    "bash",
    "job-output",
    "job-kill",
    "wait",
    "file-read",
    "file-write",
    "file-edit",
    "grep",
    "glob",
    "todo-write",
    "tool-output",
    "web-fetch",
    "goal-complete",
];
pub(super) const LATER_TOOLS: &[&str] = &["save-memory"];

/// Fields of a request's body that spettro writes itself.
pub(super) const OWN_FIELDS: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "cache_control",
];

/// Every known key of a goal file, in the table's order: `limits.cost`, `checks[].run`, `providers.*.wire`,
/// `judge.model.id`. Maps stand before their keys.
pub fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    walk(GOAL, "", &mut |path, _| paths.push(path.to_owned()));
    paths
}

/// Calls `each` with the path and the key of every entry of the table.
pub(super) fn walk(keys: &'static [Key], level: &str, each: &mut dyn FnMut(&str, &'static Key)) {
    for key in keys {
        let path = if level.is_empty() { key.name.to_owned() } else { format!("{level}.{}", key.name) };
        each(&path, key);
        let (below, path) = below(&key.kind, path);
        walk(below, &path, each);
    }
}

/// The keys inside a value of that kind, and the pattern of their level.
pub(super) fn below(kind: &'static Kind, path: String) -> (&'static [Key], String) {
    match kind {
        Kind::Map(keys) | Kind::OffOr(keys) | Kind::Record(keys) | Kind::Later(keys) => (keys, path),
        Kind::Model => (MODEL, path),
        Kind::Check => (CHECK, path),
        Kind::List { of, .. } => below(of, format!("{path}[]")),
        Kind::Named { of, .. } => below(of, format!("{path}.*")),
        _ => (&[], path),
    }
}

/// Every path that is layered as one value, with its key, in the table's order: top-level keys, and the keys of
/// closed maps one by one. `judge` stands before its own keys (its value there is `off`).
pub(super) fn leaves() -> Vec<(String, &'static Key)> {
    let mut leaves = Vec::new();
    for key in GOAL {
        match &key.kind {
            Kind::Version => {}
            Kind::Map(keys) => leaves.extend(keys.iter().map(|below| (format!("{}.{}", key.name, below.name), below))),
            Kind::OffOr(keys) => {
                leaves.push((key.name.to_owned(), key));
                leaves.extend(keys.iter().map(|below| (format!("{}.{}", key.name, below.name), below)));
            }
            _ => leaves.push((key.name.to_owned(), key)),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_key_once() {
        let mut paths = paths();
        assert!(paths.len() > 100);
        for wanted in ["limits.cost", "checks[].run", "providers.*.wire", "prices.*.cache_write_1h", "judge.model.like"]
        {
            assert!(paths.iter().any(|path| path == wanted), "{wanted}");
        }
        paths.sort();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count);
    }

    #[test]
    fn every_key_says_what_it_is_for() {
        walk(GOAL, "", &mut |path, key| {
            assert!(!key.about.is_empty() && !key.about.ends_with('.'), "{path}");
        });
    }

    #[test]
    fn a_required_key_has_no_default() {
        walk(GOAL, "", &mut |path, key| assert!(!(key.required && key.default.is_some()), "{path}"));
    }
}
