//! The merged values → [`Config`], with the rules that span several keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::layers::{Entry, Merged, steps};
use super::node::{Step, cut};
use super::parts::{
    absolute_cassette, absolute_paths, absolute_provider, check, check_value, field, field_json, field_map, key_at,
    model_spec, network, pairs, path_list, read_text, run, texts,
};
use super::show::Row;
use super::source::{Origin, Problem, Source};
use super::value::Value;
use super::{keys, show};
use crate::compact::Settings;
use crate::event::{Limits, Micros};
use crate::goal::{Check, Config, Judge, When, WorkspaceMode};
use crate::model::wire::Wire;
use crate::model::{ModelSpec, Price, ProviderSpec};
use crate::process::EnvPolicy;
use crate::process::sandbox::{Files, Wanted};

/// Most bytes of a goal's text.
const MOST_GOAL_BYTES: usize = 64 * 1024;

/// What the build needs besides the values.
pub(super) struct Context<'a> {
    /// The goal file, or what stands for it; blamed for what is missing everywhere.
    pub primary: Rc<Source>,
    pub goal_file: Option<PathBuf>,
    /// Canonical, when it could be resolved.
    pub workspace: Option<PathBuf>,
    pub default_name: String,
    /// Top-level keys that some source has, rightly or wrongly.
    pub given: BTreeSet<String>,
    /// False when the goal file could not be read as YAML: then nothing is missing from it.
    pub complete: bool,
    /// `--check`.
    pub checks: &'a [String],
    /// Hint for a goal without a model.
    pub usable: &'a dyn Fn() -> Vec<String>,
}

pub(super) struct Builder<'a> {
    pub merged: &'a Merged,
    pub context: &'a Context<'a>,
    pub problems: &'a mut Vec<Problem>,
}

/// The configuration (its `yaml` and `digest` still empty) and its rows.
pub(super) type Built = (Config, Vec<Row>);

impl Builder<'_> {
    /// A problem of a value, blamed on who set it.
    fn blame(&mut self, entry: &Entry, path: &str, deeper: &[Step], message: impl Into<String>) {
        let problem = match entry.source.origin {
            Origin::Default => self.context.primary.whole(path, message),
            Origin::Env(_) | Origin::Flag(_) => entry.source.problem(deeper, message),
            _ => {
                let mut at = steps(path);
                at.extend_from_slice(deeper);
                entry.source.problem(&at, message)
            }
        };
        self.problems.push(problem);
    }

    fn is_missing(&self, key: &str) -> bool {
        self.context.complete && !self.context.given.contains(key)
    }

    /// A required key that no source has.
    fn missing(&mut self, key: &str, hint: String) {
        if self.is_missing(key) {
            let mut problem = self.context.primary.whole(key, "missing");
            if problem.key != key {
                problem.message = format!("`{key}` is missing");
            }
            problem.hint = Some(hint);
            self.problems.push(problem);
        }
    }

    /// Everything. `None` when the goal, its model or its workspace is not there; the problems say so.
    pub(super) fn build(&mut self) -> Option<Built> {
        let goal = self.goal();
        let model = self.model("model");
        if model.is_none() && self.is_missing("model") {
            let usable = (self.context.usable)();
            let hint = match usable.as_slice() {
                [] => "write `model: provider/model`; no variable with a provider's key is set".to_owned(),
                [first, ..] => format!("write `model: {first}`; usable here: {}", usable.join(", ")),
            };
            self.missing("model", hint);
        }
        let checks = self.checks();
        let criteria = self.texts("criteria");
        let judge = self.judge(&checks, &criteria);
        let redact = self.texts("redact");
        let (goal, model, workspace) = (goal?, model?, self.context.workspace.clone()?);
        let config = Config {
            name: self.text("name").unwrap_or_else(|| self.context.default_name.clone()),
            goal,
            goal_file: self.context.goal_file.clone(),
            criteria,
            workspace,
            workspace_mode: match self.word("workspace_mode").as_str() {
                "copy" => WorkspaceMode::Copy,
                _ => WorkspaceMode::InPlace,
            },
            setup: self.list("setup").iter().filter_map(run).collect(),
            model,
            judge,
            checks,
            skip_if_met: self.flag("skip_if_met"),
            protect: self.texts("protect"),
            limits: self.limits(),
            spool_max_bytes: self.size("spool_max"),
            compaction: Settings {
                auto: self.flag("compaction.auto"),
                threshold_pct: self.whole("compaction.threshold_pct"),
                max_failures: self.whole("compaction.max_failures"),
            },
            summarizer: self.model("summarizer.model"),
            rate_limit_max_wait: self.time("rate_limit.max_wait").unwrap_or_default(),
            instructions: self.texts("instructions"),
            tools_allow: self.merged.set("tools.allow").map(|entry| texts(&entry.value)),
            tools_deny: self.texts("tools.deny"),
            web_private: self.flag("tools.web_private"),
            env: EnvPolicy {
                pass: self.texts("env.pass"),
                set: self.merged.get("env.set").map(|entry| pairs(&entry.value)).unwrap_or_default(),
                clean: self.flag("env.clean"),
            },
            sandbox: self.sandbox(),
            leftovers_run: self.word("leftovers") == "run",
            providers: self.providers(),
            prices: self.prices(),
            redact,
            record_effects: self.word("record") == "effects",
            sync_strict: self.word("sync") == "strict",
            yaml: String::new(),
            digest: String::new(),
        };
        let rows = self.rows(&config);
        Some((config, rows))
    }

    // ------------------------------------------------------------------------------------- single values
    // The key table gives each of these paths its kind, and a test reads every default: a value of another kind
    // cannot be here, and would be nothing.

    fn text(&self, path: &str) -> Option<String> {
        self.merged.get(path)?.value.text().map(str::to_owned)
    }

    fn word(&self, path: &str) -> String {
        self.text(path).unwrap_or_default()
    }

    fn flag(&self, path: &str) -> bool {
        self.merged.get(path).is_some_and(|entry| entry.value == Value::Bool(true))
    }

    fn whole(&self, path: &str) -> u64 {
        match self.merged.get(path).map(|entry| entry.value) {
            Some(Value::Whole(number)) => number,
            _ => 0,
        }
    }

    /// `None` when unlimited.
    fn time(&self, path: &str) -> Option<Duration> {
        match self.merged.get(path)?.value {
            Value::Time(time) => Some(time),
            _ => None,
        }
    }

    /// In bytes.
    fn size(&self, path: &str) -> u64 {
        match self.merged.get(path).map(|entry| entry.value) {
            Some(Value::Size(bytes)) => bytes,
            _ => 0,
        }
    }

    fn list(&self, path: &str) -> Vec<Value> {
        match self.merged.get(path).map(|entry| entry.value) {
            Some(Value::List(list)) => list,
            _ => Vec::new(),
        }
    }

    fn texts(&self, path: &str) -> Vec<String> {
        self.merged.get(path).map(|entry| texts(&entry.value)).unwrap_or_default()
    }

    fn sandbox(&self) -> Wanted {
        let set = |name: &str| self.merged.set(&format!("sandbox.{name}"));
        Wanted {
            files: Files::from_name(&self.word("sandbox.files")).unwrap_or_default(),
            network: self.merged.get("sandbox.network").map(|entry| network(&entry.value)).unwrap_or_default(),
            write: set("write").map(absolute_paths).unwrap_or_default(),
            read: set("read").map(absolute_paths).unwrap_or_default(),
            written: ["files", "network", "write", "read"].into_iter().any(|name| set(name).is_some()),
        }
    }

    fn limits(&self) -> Limits {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Limits {
            iterations: self.whole("limits.iterations"),
            steps: self.whole("limits.steps"),
            steps_per_iteration: self.whole("limits.steps_per_iteration"),
            cost: match self.merged.get("limits.cost").map(|entry| entry.value) {
                Some(Value::Money(cost)) => Some(cost),
                Some(Value::Unlimited) => None,
                // Cannot be, as said above; and if it were, nothing might be spent.
                _ => Some(Micros::ZERO),
            },
            tokens: match self.merged.get("limits.tokens").map(|entry| entry.value) {
                Some(Value::Whole(tokens)) => Some(tokens),
                _ => None,
            },
            time_ms: self.time("limits.time").map(millis),
            idle_ms: self.time("limits.idle").map(millis),
            command_ms: self.time("limits.command").map(millis).unwrap_or_default(),
            stall: self.whole("limits.stall"),
            consecutive_errors: self.whole("limits.consecutive_errors"),
        }
    }

    // ------------------------------------------------------------------------------------ composed values

    /// The goal's text, trimmed.
    fn goal(&mut self) -> Option<String> {
        let Some(entry) = self.merged.get("goal") else {
            self.missing("goal", "write what is to be reached: `goal: …`, or `goal: {file: PATH}`".to_owned());
            return None;
        };
        let file = [Step::Key("file".to_owned())];
        let (text, deeper) = match &entry.value {
            Value::Text(text) => (text.clone(), &file[..0]),
            map => {
                let path = entry.source.base.join(map.get("file").and_then(Value::text).unwrap_or_default());
                match read_text(&path, MOST_GOAL_BYTES * 4) {
                    Ok(text) => (text, &file[..]),
                    Err(message) => {
                        self.blame(&entry, "goal", &file, message);
                        return None;
                    }
                }
            }
        };
        let text = text.replace("\r\n", "\n").replace('\r', "\n").trim().to_owned();
        if text.is_empty() {
            self.blame(&entry, "goal", deeper, "is empty");
            return None;
        }
        if text.len() > MOST_GOAL_BYTES {
            let message = format!("has {} bytes; at most {MOST_GOAL_BYTES} (64 KiB)", text.len());
            self.blame(&entry, "goal", deeper, message);
            return None;
        }
        if text.contains('\0') {
            self.blame(&entry, "goal", deeper, "has a NUL character");
            return None;
        }
        Some(text)
    }

    fn model(&mut self, path: &str) -> Option<ModelSpec> {
        let entry = self.merged.set(path)?.clone();
        let spec = model_spec(&entry.value, &entry.source.base);
        if let Some(cassette) = &spec.cassette
            && !cassette.is_file()
        {
            let message = format!("`{}` is no file", cassette.display());
            self.blame(&entry, path, &[Step::Key("cassette".to_owned())], message);
            return None;
        }
        Some(spec)
    }

    fn judge(&mut self, checks: &[Check], criteria: &[String]) -> Option<Judge> {
        if let Some(off) = self.merged.set("judge").filter(|entry| entry.value == Value::Off).cloned() {
            let gating = checks.iter().any(|check| check.required && check.when != When::Start);
            let checks_read = self.merged.set("checks").is_some() || !self.context.given.contains("checks");
            if !gating && checks_read {
                self.blame(&off, "judge", &[], "`off` needs at least one required check (not one with `when: start`)");
            }
            if !criteria.is_empty()
                && let Some(entry) = self.merged.set("criteria").cloned()
            {
                self.blame(&entry, "criteria", &[], "criteria are answered by the judge, and `judge` is `off`");
            }
            return None;
        }
        Some(Judge {
            model: self.model("judge.model"),
            messages: self.whole("judge.messages"),
            timeout: self.time("judge.timeout").unwrap_or_default(),
            retries: self.whole("judge.retries"),
            votes: self.whole("judge.votes"),
        })
    }

    /// The checks of the file (or whoever sets them last), then those of the command line.
    fn checks(&mut self) -> Vec<Check> {
        let entry = self.merged.get("checks");
        let mut named: Vec<(Check, Option<usize>)> = Vec::new();
        for (index, value) in self.list("checks").iter().enumerate() {
            named.extend(check(value).map(|check| (check, Some(index))));
        }
        for command in self.context.checks {
            let value = Value::Map(vec![("run".to_owned(), Value::Text(command.trim().to_owned()))]);
            named.extend(check(&value).map(|check| (check, None)));
        }
        let mut names = BTreeSet::new();
        for (check, index) in &named {
            if names.insert(check.name.clone()) {
                continue;
            }
            let message = format!("two checks are named `{}`; give one of them another `name`", cut(&check.name));
            match (&entry, index) {
                (Some(entry), Some(index)) => self.blame(&entry.clone(), "checks", &[Step::Item(*index)], message),
                _ => self.problems.push(flag_check().whole("", message)),
            }
        }
        named.into_iter().map(|(check, _)| check).collect()
    }

    fn providers(&self) -> BTreeMap<String, ProviderSpec> {
        let all = self.merged.named("providers").into_iter();
        all.filter_map(|(name, entry)| {
            let map = &entry.value;
            let spec = ProviderSpec {
                wire: map.get("wire").and_then(Value::text).and_then(Wire::from_name)?,
                base_url: field(map, "base_url")?,
                api_key_env: field(map, "api_key_env"),
                api_key_at: key_at(entry),
                headers: field_map(map, "headers"),
                env_http_headers: field_map(map, "env_http_headers"),
                query_params: field_map(map, "query_params"),
                extra_body: field_json(map, "extra_body"),
                ca_file: field(map, "ca_file").map(|path| entry.source.base.join(path)),
            };
            Some((name.to_owned(), spec))
        })
        .collect()
    }

    fn prices(&self) -> BTreeMap<String, Price> {
        let all = self.merged.named("prices").into_iter();
        all.filter_map(|(name, entry)| {
            let price = |key: &str| match entry.value.get(key) {
                Some(Value::Price(micros)) => Some(*micros),
                _ => None,
            };
            let price = Price {
                input: price("input")?,
                output: price("output")?,
                cache_read: price("cache_read"),
                cache_write: price("cache_write"),
                cache_write_1h: price("cache_write_1h"),
                above: None,
            };
            Some((name.to_owned(), price))
        })
        .collect()
    }

    // --------------------------------------------------------------------------------------- what is shown

    /// Every effective value with its origin, secrets masked, in the key table's order.
    fn rows(&self, config: &Config) -> Vec<Row> {
        let mut rows = vec![Row {
            group: None,
            name: "version".to_owned(),
            value: Value::Whole(1),
            origin: self.context.primary.origin.clone(),
        }];
        for (path, key) in keys::leaves() {
            let group = path.split_once('.').and_then(|(group, _)| keys::GOAL.iter().find(|key| key.name == group));
            let group = group.map(|key| key.name);
            let mut push = |name: &str, value: &Value, origin: Origin, group| {
                let value = show::masked_at(name, value, &config.redact);
                rows.push(Row { group, name: name.to_owned(), value, origin });
            };
            if key.name == "providers" || key.name == "prices" {
                for (name, entry) in self.merged.named(key.name) {
                    push(name, &absolute_provider(entry), entry.source.origin.clone(), Some(key.name));
                }
                continue;
            }
            let judge_is_off = config.judge.is_none();
            if (path == "judge" && !judge_is_off) || (path.starts_with("judge.") && judge_is_off) {
                continue;
            }
            let entry = self.merged.get(&path);
            let mut origin = entry.as_ref().map_or(Origin::Default, |entry| entry.source.origin.clone());
            let value = match path.as_str() {
                "name" => Value::Text(config.name.clone()),
                "goal" => Value::Text(config.goal.clone()),
                "workspace" => Value::Text(config.workspace.display().to_string()),
                "checks" => {
                    if !self.context.checks.is_empty() {
                        origin = match origin {
                            Origin::Default => Origin::Flag("--check".to_owned()),
                            other => Origin::Flag(format!("{other} and --check")),
                        };
                    }
                    Value::List(config.checks.iter().map(check_value).collect())
                }
                "sandbox.write" | "sandbox.read" => match &entry {
                    Some(entry) => path_list(&absolute_paths(entry)),
                    None => continue,
                },
                _ => match entry {
                    Some(entry) => absolute_cassette(&entry),
                    None => continue,
                },
            };
            push(key.name, &value, origin, group);
        }
        rows
    }
}

/// Blamed for what `--check` did.
fn flag_check() -> Source {
    Source::setting(Origin::Flag("--check".to_owned()), PathBuf::new())
}
