//! The environment of children: all of ours but what is secret, and what makes programs work without a person.

use std::collections::BTreeMap;
use std::path::Path;

use globset::{Glob, GlobMatcher};

use super::EnvPolicy;
use crate::world::Secrets;

/// How names of secrets end. Names in lower case are as secret as others: `npm_config_auth_token`.
const SECRET_ENDS: [&str; 7] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_PASSPHRASE", "_PAT"];

/// Whole names of secrets, as images and clients of databases and of ssh read them.
const SECRET_NAMES: [&str; 11] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIALS",
    "PGPASSWORD",
    "MYSQL_PWD",
    "REDISCLI_AUTH",
    "SSHPASS",
    "APIKEY",
];

/// Files and tokens through which a command could steer later steps of a CI job. Only their own names pass them.
const CI_FILES: [&str; 5] = ["GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "ACTIONS_*"];

/// What is left with `clean`.
const CLEAN: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ"];

/// Nobody answers, nobody looks at colours, and editors and pagers would wait for ever.
const FIXED: [(&str, &str); 14] = [
    ("CI", "1"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    // A vim that nobody can type into would wait for ever; one that has its commands ends by them before this.
    ("VIMINIT", "autocmd VimEnter * if !has('ttyin') | cquit! | endif"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("HUSKY", "0"),
];

/// Taken only where the environment names nobody.
const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "spettro"),
    ("GIT_AUTHOR_EMAIL", "spettro@localhost"),
    ("GIT_COMMITTER_NAME", "spettro"),
    ("GIT_COMMITTER_EMAIL", "spettro@localhost"),
];

/// Whether a name says that what it names is a secret.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    let ends = SECRET_ENDS.iter().any(|end| name.ends_with(end));
    ends || name.contains("_CREDENTIAL") || SECRET_NAMES.contains(&name.as_str())
}

/// The environment every child starts from, and what is not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildEnvironment {
    /// Sorted by name.
    pub vars: Vec<(String, String)>,
    /// What spettro's own git starts from, likewise: nothing of `env:`, which a goal file of the repository may set,
    /// and of git's own variables only ours. They lead it elsewhere, or make it run something.
    pub git: Vec<(String, String)>,
    /// Names of what was taken out because it is or looks like a secret, sorted.
    pub removed: Vec<String>,
}

/// Makes it from spettro's own variables `vars`.
///
/// `pass` lets a variable through that looks like a secret; a provider key only when it is named without a
/// wildcard, and so what steers a CI job. `set` has the last word over everything but `SPETTRO_*`.
pub fn child_environment(
    vars: &[(String, String)],
    policy: &EnvPolicy,
    provider_keys: &[String],
    secrets: &Secrets,
    workspace: &Path,
    run_id: &str,
    tmpdir: &Path,
) -> ChildEnvironment {
    let (mut result, mut removed) = inherited(vars, policy, provider_keys, secrets);
    let (mut git, _) = inherited(vars, &EnvPolicy::default(), provider_keys, secrets);
    git.retain(|name, _| !name.starts_with("GIT_"));
    if let Some(path) = git.remove("PATH").map(|path| outside(&path, workspace)).filter(|path| !path.is_empty()) {
        git.insert("PATH".to_owned(), path);
    }
    for vars in [&mut result, &mut git] {
        for (name, value) in FIXED {
            vars.insert(name.to_owned(), value.to_owned());
        }
        for (name, value) in IDENTITY {
            vars.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        vars.insert("TMPDIR".to_owned(), tmpdir.display().to_string());
        add_git_config(vars, &workspace.display().to_string());
    }
    for (name, value) in &policy.set {
        result.insert(name.clone(), value.clone());
        removed.retain(|other| other != name);
    }
    for vars in [&mut result, &mut git] {
        vars.insert("SPETTRO_RUN_ID".to_owned(), run_id.to_owned());
    }
    removed.sort();
    ChildEnvironment { vars: result.into_iter().collect(), git: git.into_iter().collect(), removed }
}

/// What of our own variables passes, and the names of what does not because it is or looks like a secret.
fn inherited(
    vars: &[(String, String)],
    policy: &EnvPolicy,
    provider_keys: &[String],
    secrets: &Secrets,
) -> (BTreeMap<String, String>, Vec<String>) {
    let ci_files = globs(CI_FILES);
    let clean = globs(CLEAN);
    let passes = globs(policy.pass.iter().map(String::as_str));
    let mut result = BTreeMap::new();
    let mut removed = Vec::new();
    for (name, value) in vars {
        let named = policy.pass.contains(name);
        let passed = named || matches(&passes, name);
        let key = provider_keys.contains(name) || matches(&ci_files, &name.to_ascii_uppercase());
        let secret = secrets.is_secret(value) || looks_secret(name);
        if (key && !named) || (secret && !passed) {
            removed.push(name.clone());
        } else if !policy.clean || passed || matches(&clean, name) {
            result.insert(name.clone(), value.clone());
        }
    }
    (result, removed)
}

/// The folders of a `PATH` whose programs are not the workspace's: neither inside it nor relative to where one is.
fn outside(path: &str, workspace: &Path) -> String {
    let folders = path.split(':').filter(|folder| folder.starts_with('/') && !Path::new(folder).starts_with(workspace));
    folders.collect::<Vec<_>>().join(":")
}

/// Configuration for every git below, after what the environment has of it already.
fn add_git_config(vars: &mut BTreeMap<String, String>, workspace: &str) {
    let before: usize = vars.get("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    let ours = [("gc.auto", "0"), ("maintenance.auto", "false"), ("safe.directory", workspace)];
    for (index, (key, value)) in (before..).zip(ours) {
        vars.insert(format!("GIT_CONFIG_KEY_{index}"), key.to_owned());
        vars.insert(format!("GIT_CONFIG_VALUE_{index}"), value.to_owned());
    }
    vars.insert("GIT_CONFIG_COUNT".to_owned(), (before + ours.len()).to_string());
}

/// What to tell when a failing command's `output` names variables that were taken out of its environment.
pub fn hint(output: &str, removed: &[String]) -> Option<String> {
    let named: Vec<&str> = removed.iter().map(String::as_str).filter(|name| has_word(output, name)).collect();
    match named.as_slice() {
        [] => None,
        [name] => Some(format!(
            "`{name}` looks like a secret and was not passed to the command; `env: {{pass: [{name}]}}` in the goal file \
             passes it"
        )),
        names => Some(format!(
            "{} look like secrets and were not passed to the command; `env: {{pass: [{}]}}` in the goal file passes them",
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            names.join(", ")
        )),
    }
}

/// True when `word` occurs in `text` and is not a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let in_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(in_name) && !text[at + word.len()..].starts_with(in_name))
}

/// Globs that do not parse match nothing; the goal file's were checked when it was read.
fn globs<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Vec<GlobMatcher> {
    patterns.into_iter().filter_map(|pattern| Glob::new(pattern).ok()).map(|glob| glob.compile_matcher()).collect()
}

fn matches(globs: &[GlobMatcher], name: &str) -> bool {
    globs.iter().any(|glob| glob.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn environment(given: &[(&str, &str)], policy: &EnvPolicy) -> ChildEnvironment {
        let secrets = Secrets::new(vars(&[("X", "a-secret-value")]));
        let keys = ["ANTHROPIC_API_KEY".to_owned(), "MY_PROVIDER".to_owned()];
        child_environment(&vars(given), policy, &keys, &secrets, Path::new("/w"), "run-1", Path::new("/t"))
    }

    fn value<'a>(environment: &'a ChildEnvironment, name: &str) -> Option<&'a str> {
        let found = environment.vars.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    const GIVEN: [(&str, &str); 16] = [
        ("PATH", "/bin"),
        ("HOME", "/root"),
        ("LC_ALL", "C"),
        ("EDITOR", "vim"),
        ("FOO", "bar"),
        ("ANTHROPIC_API_KEY", "k"),
        ("MY_PROVIDER", "k"),
        ("DEPLOY_TOKEN", "t"),
        ("npm_config_auth_token", "t"),
        ("AWS_CREDENTIALS_FILE", "c"),
        ("DB_PASSWORD", "p"),
        ("CLIENT_SECRET", "s"),
        ("GITHUB_OUTPUT", "/o"),
        ("GITHUB_SHA", "abc"),
        ("ACTIONS_RUNTIME_URL", "u"),
        ("DISGUISED", "a-secret-value"),
    ];

    #[test]
    fn secrets_are_taken_out_and_the_rest_passes() {
        let environment = environment(&GIVEN, &EnvPolicy::default());
        let removed = [
            "ACTIONS_RUNTIME_URL",
            "ANTHROPIC_API_KEY",
            "AWS_CREDENTIALS_FILE",
            "CLIENT_SECRET",
            "DB_PASSWORD",
            "DEPLOY_TOKEN",
            "DISGUISED",
            "GITHUB_OUTPUT",
            "MY_PROVIDER",
            "npm_config_auth_token",
        ];
        assert_eq!(environment.removed, removed);
        assert!(removed.iter().all(|name| value(&environment, name).is_none()));
        for (name, expected) in [("PATH", "/bin"), ("FOO", "bar"), ("GITHUB_SHA", "abc"), ("LC_ALL", "C")] {
            assert_eq!(value(&environment, name), Some(expected), "{name}");
        }
    }

    #[test]
    fn names_of_secrets_need_no_prefix() {
        let secret = [
            "TOKEN",
            "PASSWORD",
            "Passphrase",
            "PGPASSWORD",
            "MYSQL_PWD",
            "SSHPASS",
            "GITHUB_PAT",
            "SIGNING_PASSPHRASE",
            "DB_PASSWD",
            "x-api-key",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ];
        for name in secret {
            assert!(looks_secret(name), "{name}");
            let environment = environment(&[(name, "v")], &EnvPolicy::default());
            assert_eq!(value(&environment, name), None);
            assert_eq!(environment.removed, [name]);
        }
        for name in ["PWD", "OLDPWD", "PATH", "COMPAT", "TOKENIZERS_PARALLELISM", "KEYBOARD", "SSH_ASKPASS"] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn git_of_ours_hears_neither_the_goal_file_nor_what_leads_git_elsewhere() {
        let given = [
            ("PATH", "/usr/bin:bin::/w/node_modules/.bin:/w2/bin"),
            ("HOME", "/root"),
            ("GIT_DIR", "/elsewhere"),
            ("GIT_OBJECT_DIRECTORY", "/elsewhere"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "alias.x"),
            ("GIT_CONFIG_VALUE_0", "!id"),
            ("GIT_SSH_COMMAND", "x"),
            ("A_TOKEN", "t"),
        ];
        let set =
            vars(&[("PATH", "/w/bin"), ("LD_PRELOAD", "/w/x.so"), ("GIT_DIR", "/w/other"), ("GIT_EDITOR", "/w/x")]);
        let policy = EnvPolicy { pass: vec!["*".to_owned()], set, clean: false };
        let environment = environment(&given, &policy);
        assert_eq!(value(&environment, "PATH"), Some("/w/bin"), "commands get what the goal file says");
        let git: BTreeMap<&str, &str> =
            environment.git.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (name, expected) in [
            ("PATH", "/usr/bin:/w2/bin"),
            ("HOME", "/root"),
            ("GIT_EDITOR", "true"),
            ("GIT_CONFIG_COUNT", "3"),
            ("GIT_CONFIG_KEY_0", "gc.auto"),
            ("GIT_CONFIG_VALUE_2", "/w"),
            ("TMPDIR", "/t"),
            ("SPETTRO_RUN_ID", "run-1"),
        ] {
            assert_eq!(git.get(name), Some(&expected), "{name}");
        }
        for name in ["LD_PRELOAD", "GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_SSH_COMMAND", "A_TOKEN"] {
            assert_eq!(git.get(name), None, "{name}");
        }
    }

    #[test]
    fn what_lets_programs_work_without_a_person_is_set() {
        let environment = environment(&GIVEN, &EnvPolicy::default());
        for (name, expected) in [
            ("CI", "1"),
            ("TERM", "dumb"),
            ("EDITOR", "false"),
            ("GIT_EDITOR", "true"),
            ("GIT_SEQUENCE_EDITOR", "false"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("HUSKY", "0"),
            ("TMPDIR", "/t"),
            ("SPETTRO_RUN_ID", "run-1"),
            ("GIT_CONFIG_COUNT", "3"),
            ("GIT_CONFIG_KEY_2", "safe.directory"),
            ("GIT_CONFIG_VALUE_2", "/w"),
            ("GIT_AUTHOR_NAME", "spettro"),
        ] {
            assert_eq!(value(&environment, name), Some(expected), "{name}");
        }
    }

    #[test]
    fn git_configuration_and_identity_that_are_there_stay() {
        let given = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "a.b"),
            ("GIT_CONFIG_VALUE_0", "c"),
            ("GIT_AUTHOR_NAME", "me"),
        ];
        let environment = environment(&given, &EnvPolicy::default());
        for (name, expected) in [
            ("GIT_CONFIG_COUNT", "4"),
            ("GIT_CONFIG_KEY_0", "a.b"),
            ("GIT_CONFIG_KEY_1", "gc.auto"),
            ("GIT_CONFIG_VALUE_3", "/w"),
            ("GIT_AUTHOR_NAME", "me"),
            ("GIT_COMMITTER_NAME", "spettro"),
        ] {
            assert_eq!(value(&environment, name), Some(expected), "{name}");
        }
    }

    #[test]
    fn pass_and_set_have_their_say() {
        let policy = EnvPolicy {
            pass: vec![
                "*_TOKEN".to_owned(),
                "DISGUISED".to_owned(),
                "*_KEY".to_owned(),
                "MY_PROVIDER".to_owned(),
                "*".to_owned(),
            ],
            set: vars(&[("CI", "0"), ("DB_PASSWORD", "test"), ("SPETTRO_RUN_ID", "forged")]),
            clean: false,
        };
        let environment = environment(&GIVEN, &policy);
        assert_eq!(value(&environment, "DEPLOY_TOKEN"), Some("t"));
        assert_eq!(value(&environment, "DISGUISED"), Some("a-secret-value"));
        assert_eq!(value(&environment, "MY_PROVIDER"), Some("k"), "named without a wildcard");
        assert_eq!(value(&environment, "ANTHROPIC_API_KEY"), None, "a wildcard passes no provider key");
        assert_eq!(value(&environment, "GITHUB_OUTPUT"), None, "nor what steers the CI job");
        assert_eq!(value(&environment, "ACTIONS_RUNTIME_URL"), None);
        assert_eq!(value(&environment, "CI"), Some("0"));
        assert_eq!(value(&environment, "DB_PASSWORD"), Some("test"));
        assert!(!environment.removed.contains(&"DB_PASSWORD".to_owned()));
        assert_eq!(value(&environment, "SPETTRO_RUN_ID"), Some("run-1"));
    }

    #[test]
    fn clean_is_a_strict_list() {
        let policy = EnvPolicy { pass: vec!["FOO".to_owned()], set: vars(&[("B", "2")]), clean: true };
        let environment = environment(&GIVEN, &policy);
        let own = |name: &str| {
            FIXED.iter().chain(&IDENTITY).any(|(other, _)| *other == name)
                || name.starts_with("GIT_CONFIG_")
                || name == "TMPDIR"
                || name == "SPETTRO_RUN_ID"
        };
        let left: Vec<&str> =
            environment.vars.iter().map(|(name, _)| name.as_str()).filter(|name| !own(name)).collect();
        assert_eq!(left, ["B", "FOO", "HOME", "LC_ALL", "PATH"]);
    }

    #[test]
    fn a_hint_names_what_the_output_misses() {
        let removed = ["NPM_TOKEN".to_owned(), "KEY".to_owned(), "X_SECRET".to_owned()];
        assert_eq!(hint("error: MY_KEY and NPM_TOKEN2 are fine", &removed), None);
        let one = hint("error: $NPM_TOKEN: unbound variable", &removed).unwrap();
        assert!(one.contains("`NPM_TOKEN`") && one.contains("env: {pass: [NPM_TOKEN]}"), "{one}");
        let two = hint("NPM_TOKEN, X_SECRET", &removed).unwrap();
        assert!(two.contains("env: {pass: [NPM_TOKEN, X_SECRET]}"), "{two}");
    }
}
