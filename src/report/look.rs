//! How output looks, decided once from the terminal, the environment and the flags. Looks only: no policy.

/// What stdout is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The summary at the end.
    Text,
    /// Every event, one JSON object a line.
    Jsonl,
    /// The result object at the end.
    Json,
}

/// The value of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColourChoice {
    #[default]
    Auto,
    Always,
    Never,
}

/// How stderr and stdout are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// stderr is a terminal: its lines are clipped to its width.
    pub terminal: bool,
    /// Bars instead of a heartbeat.
    pub bars: bool,
    /// Colours on stderr.
    pub colour: bool,
    /// Colours in the summary on stdout.
    pub out_colour: bool,
    /// Warnings and errors only.
    pub quiet: bool,
    /// 0, or how often `-v` was given.
    pub verbose: bool,
}

impl Look {
    /// The rules of `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, `TERM` and `CI`. A flag wins over the environment,
    /// and `NO_COLOR` over `CLICOLOR_FORCE`. `env` gives a variable's value; an empty one counts as unset.
    pub fn decide(
        stderr_is_terminal: bool,
        stdout_is_terminal: bool,
        env: &dyn Fn(&str) -> Option<String>,
        colour: ColourChoice,
        quiet: bool,
        verbose: bool,
    ) -> Look {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        let in_ci = set("CI").is_some_and(|value| value != "false" && value != "0");
        let coloured = |is_terminal: bool| match colour {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto if set("NO_COLOR").is_some() => false,
            ColourChoice::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
            ColourChoice::Auto => is_terminal && !dumb && set("CLICOLOR").is_none_or(|value| value != "0"),
        };
        Look {
            terminal: stderr_is_terminal,
            bars: stderr_is_terminal && !dumb && !in_ci && !quiet,
            colour: coloured(stderr_is_terminal),
            out_colour: coloured(stdout_is_terminal),
            quiet,
            verbose,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(terminal: bool, vars: &[(&str, &str)], colour: ColourChoice) -> Look {
        let env = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Look::decide(terminal, terminal, &env, colour, false, false)
    }

    #[test]
    fn bars_need_a_terminal_that_can_move_its_cursor_and_a_person() {
        let xterm = ("TERM", "xterm-256color");
        for (terminal, vars, bars) in [
            (true, vec![xterm], true),
            (false, vec![xterm], false),
            (true, vec![("TERM", "dumb")], false),
            (true, vec![], false),
            (true, vec![xterm, ("CI", "1")], false),
            (true, vec![xterm, ("CI", "true")], false),
            (true, vec![xterm, ("CI", "false")], true),
            (true, vec![xterm, ("CI", "")], true),
            (true, vec![xterm, ("NO_COLOR", "1")], true),
        ] {
            assert_eq!(decide(terminal, &vars, ColourChoice::Auto).bars, bars, "{terminal} {vars:?}");
        }
        let env = |name: &str| (name == "TERM").then(|| "xterm".to_owned());
        assert!(!Look::decide(true, true, &env, ColourChoice::Auto, true, false).bars, "quiet has no bars");
    }

    #[test]
    fn colours_follow_flag_then_no_color_then_force_then_terminal() {
        use ColourChoice::{Always, Auto, Never};
        let xterm = ("TERM", "xterm");
        for (terminal, vars, choice, colour) in [
            (true, vec![xterm], Auto, true),
            (false, vec![xterm], Auto, false),
            (true, vec![("TERM", "dumb")], Auto, false),
            (true, vec![xterm, ("NO_COLOR", "1")], Auto, false),
            (true, vec![xterm, ("NO_COLOR", "")], Auto, true),
            (false, vec![("CLICOLOR_FORCE", "1")], Auto, true),
            (false, vec![("CLICOLOR_FORCE", "0")], Auto, false),
            (true, vec![xterm, ("CLICOLOR", "0")], Auto, false),
            (false, vec![("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], Auto, false),
            (false, vec![("NO_COLOR", "1")], Always, true),
            (true, vec![xterm, ("CLICOLOR_FORCE", "1")], Never, false),
        ] {
            let look = decide(terminal, &vars, choice);
            assert_eq!((look.colour, look.out_colour), (colour, colour), "{terminal} {vars:?} {choice:?}");
        }
    }

    #[test]
    fn each_stream_has_its_own_colour() {
        let env = |name: &str| (name == "TERM").then(|| "xterm".to_owned());
        let look = Look::decide(true, false, &env, ColourChoice::Auto, false, true);
        assert_eq!(
            look,
            Look { terminal: true, bars: true, colour: true, out_colour: false, quiet: false, verbose: true }
        );
    }
}
