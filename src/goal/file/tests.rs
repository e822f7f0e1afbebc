//! The reader as a whole: what is accepted, what is refused and in which words, and who wins.

mod accepted;
mod layered;
mod refused;
mod shown;
mod trusted;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;

#[derive(Default)]
struct Vars(BTreeMap<String, String>);

impl Env for Vars {
    fn var(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    fn vars(&self) -> Vec<(String, String)> {
        self.0.clone().into_iter().collect()
    }
}

/// A folder with a goal file, a home, an environment.
struct Place {
    folder: tempfile::TempDir,
    env: Vars,
    overrides: Overrides,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("home")).unwrap();
        Place { folder, env: Vars::default(), overrides: Overrides::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn var(&mut self, name: &str, value: &str) {
        self.env.0.insert(name.to_owned(), value.to_owned());
    }

    fn set(&mut self, key: &str, value: &str) {
        let flag = format!("--set {key}");
        self.overrides.settings.push(Setting { flag, key: key.to_owned(), value: value.to_owned() });
    }

    fn source(&self, source: &GoalSource) -> Result<Effective, Vec<Problem>> {
        let home = self.path().join("home");
        let usable = || self.env.var("USABLE").into_iter().collect();
        load_with(source, &self.overrides, &self.env, Some(&home), &self.path(), &usable)
    }

    fn load(&self) -> Result<Effective, Vec<Problem>> {
        self.source(&GoalSource::File("goal.yaml".into()))
    }

    /// The problems, one line each, without the folder's own path.
    fn problems(&self) -> Vec<String> {
        match self.load() {
            Ok(effective) => panic!("accepted:\n{}", effective.config.yaml),
            Err(problems) => self.lines(&problems),
        }
    }

    fn lines(&self, problems: &[Problem]) -> Vec<String> {
        let folder = format!("{}/", self.path().display());
        problems.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }
}

fn goal(rest: &str) -> String {
    format!("version: 1\ngoal: do it\nmodel: local/tiny\n{rest}")
}

/// The configuration that a goal file with these lines means.
fn config(rest: &str) -> Config {
    let place = Place::new();
    place.write("goal.yaml", goal(rest));
    match place.load() {
        Ok(effective) => effective.config,
        Err(problems) => panic!("{}", place.lines(&problems).join("\n")),
    }
}

/// The problems of a goal file with these lines; they begin in line 4.
fn refused(rest: &str) -> Vec<String> {
    let place = Place::new();
    place.write("goal.yaml", goal(rest));
    place.problems()
}

const EVERYTHING: &str = r#"
name: everything
criteria: [it works, "it is tested"]
workspace: work
workspace_mode: copy
setup:
  - make deps
  - [cargo, fetch]
judge: {model: {id: big, provider: local}, messages: 4, timeout: 90s, retries: 0, votes: 3}
summarizer: {model: local/small}
compaction: {auto: false, threshold_pct: 70, max_failures: 5}
checks:
  - cargo test
  - name: lint
    run: [cargo, clippy, --, -D, "all warnings"]
    cwd: sub
    timeout: 1h30m
    expect: 3
    when: before_judge
    required: false
    env: {A: 1, B: two}
  - {run: 'true', when: start}
skip_if_met: true
protect: [tests/**, "*.lock"]
limits:
  iterations: 7
  steps: 70
  steps_per_iteration: 9
  cost: 0.5
  tokens: 1000000
  time: unlimited
  idle: 10m
  command: 30s
  stall: 2
  consecutive_errors: 4
rate_limit: {max_wait: 0s}
instructions: []
tools: {allow: [bash, file-read], deny: [grep], web_private: true}
sandbox: {files: read-only, network: [443, 8080], write: [out, ~/shared, /var/x], read: [in]}
env: {pass: ["CARGO_*"], set: {X: "1", API_TOKEN: hush-hush}, clean: true}
leftovers: run
session_location: home
record: effects
sync: strict
spool_max: 64 MiB
providers:
  local:
    wire: openai-chat
    base_url: http://127.0.0.1:8080/v1
    api_key_env: LOCAL_KEY
    headers: {x-team: blue}
    query_params: {v: 2}
    extra_body: {temperature: 0.70, stop: [a, null, true], nested: {n: 1}}
  other:
    wire: anthropic
    base_url: https://llm.corp.test
    api_key_file: keys/other
    env_http_headers: {x-tenant: CORP_TENANT}
    ca_file: /etc/corp.pem
  vault:
    wire: gemini
    base_url: https://gemini.corp.test/v1beta
    api_key_command: [vault, print]
prices:
  local/tiny: {input: 3.00, output: 15, cache_read: 0.000001, cache_write: "3.75", cache_write_1h: 6}
redact: [MY_PASS]
"#;

fn everything() -> Place {
    let place = Place::new();
    place.write("work/sub/x", "");
    let model = "model: {id: tiny, provider: local, wire: anthropic, base_url: 'https://h/', api_key_env: K, context_window: 9000, \
                 max_output_tokens: 800, reasoning_effort: high, headers: {a: b}, query_params: {c: d}, \
                 extra_body: {e: 1}, like: anthropic/x, idle_timeout: 1m, first_event_timeout: 2m}\n";
    place.write("goal.yaml", format!("version: 1\ngoal: do it\n{model}{EVERYTHING}"));
    place
}
