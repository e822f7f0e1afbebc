//! `spettro help`: the verbs' own help texts, and the exit codes.

use std::io::{self, Write};

use clap::CommandFactory;

use super::args::{Cli, HelpArgs};
use crate::event::Outcome;

/// Prints the help on a topic. An unknown topic is a usage error, said on `err`.
///
/// # Errors
/// When `out` or `err` cannot be written.
pub fn help(args: &HelpArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Outcome> {
    on(Cli::command(), args, out, err)
}

fn on(mut command: clap::Command, args: &HelpArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Outcome> {
    let topics: Vec<&str> = args.topic.iter().map(String::as_str).collect();
    if topics == ["exit-codes"] {
        write!(out, "{}", super::exit_codes::text())?;
        return Ok(Outcome::Met);
    }
    command.build();
    let mut found = &mut command;
    for topic in &topics {
        found = match found.find_subcommand_mut(topic) {
            Some(verb) if !verb.is_hide_set() => verb,
            _ => {
                writeln!(err, "error: no help on `{}`", topics.join(" "))?;
                writeln!(err, "hint: `spettro help` lists the verbs; `spettro help exit-codes` is there too")?;
                return Ok(Outcome::Usage);
            }
        };
    }
    write!(out, "{}", found.render_long_help())?;
    Ok(Outcome::Met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(topics: &[&str]) -> (Outcome, String, String) {
        let args = HelpArgs { topic: topics.iter().map(|topic| (*topic).to_owned()).collect() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let outcome = on(Cli::command().term_width(100), &args, &mut out, &mut err).unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn every_verb_has_help_and_only_those() {
        for topic in [&["run"][..], &["validate"], &["cassette", "pack"], &["jobs", "kill"], &["help"]] {
            let (outcome, out, _) = about(topic);
            assert_eq!(outcome, Outcome::Met, "{topic:?}");
            assert!(out.contains(&format!("Usage: spettro {}", topic.join(" "))), "{out}");
            assert!(!out.contains('\u{1b}'));
        }
        let (_, out, _) = about(&[]);
        assert!(out.contains("Usage: spettro <COMMAND>") && !out.contains("__zygote"), "{out}");
        let (outcome, out, err) = about(&["walk"]);
        assert_eq!((outcome, out.as_str()), (Outcome::Usage, ""));
        assert!(err.starts_with("error: no help on `walk`\n"));
        assert_eq!(about(&["__zygote"]).0, Outcome::Usage);
        assert_eq!(about(&["exit-codes", "run"]).0, Outcome::Usage);
    }

    #[test]
    fn help_texts() {
        insta::assert_snapshot!("spettro", about(&[]).1);
        insta::assert_snapshot!("run", about(&["run"]).1);
        insta::assert_snapshot!("exit-codes", about(&["exit-codes"]).1);
        let others: Vec<String> =
            [&["validate"][..], &["checks"], &["schema"], &["cassette", "pack"], &["steer"], &["stop"], &["jobs"]]
                .iter()
                .map(|topic| about(topic).1)
                .collect();
        insta::assert_snapshot!("others", others.join("\n--------\n"));
    }
}
