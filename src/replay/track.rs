//! Which facts of a log a replay must meet again, in which order, and which ones only tell what came from outside.

use crate::session::{CommandRun, Fact, Message, Purpose};

/// What a fact is to a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    /// Written by the loop itself: each must come again, in this order.
    Loop,
    /// Written by the baseline, which runs beside the first model call.
    Baseline,
    /// Something from outside that the loop heard: the replay lets it come where it stands.
    Cue,
    /// What a command gave.
    Command,
    /// Differs from run to run, or repeats what others say.
    Aside,
}

/// The notice with which a drain begins.
pub const DRAIN: &str = "drain";

pub fn track(fact: &Fact) -> Track {
    match fact {
        Fact::Baseline { .. } => Track::Baseline,
        Fact::Checks { iteration: 0, .. } => Track::Baseline,
        Fact::Progress(progress) if progress.iteration == 0 => Track::Baseline,
        Fact::Steer { .. } | Fact::Interrupted { .. } | Fact::Halted { .. } => Track::Cue,
        Fact::Notice { code, .. } if code == DRAIN => Track::Cue,
        // What the tripwire asked git about is in what it found.
        Fact::Command(run) if asks_about_settings(run) => Track::Aside,
        Fact::Command(_) => Track::Command,
        Fact::Frozen(_)
        | Fact::Attempt { .. }
        | Fact::Jobs { .. }
        | Fact::Listing { .. }
        | Fact::Guarded(_)
        | Fact::Effects(_)
        | Fact::WireCut { .. }
        | Fact::Elapsed { .. }
        | Fact::Notice { .. }
        | Fact::Tip { .. }
        | Fact::Unknown(_) => Track::Aside,
        Fact::Message(_)
        | Fact::Tasks { .. }
        | Fact::Verdict { .. }
        | Fact::Checks { .. }
        | Fact::Iteration { .. }
        | Fact::Recut { .. }
        | Fact::Prune(_)
        | Fact::Compaction(_)
        | Fact::Run(_)
        | Fact::Call(_)
        | Fact::Settled(_)
        | Fact::ToolStarted(_)
        | Fact::Tool(_)
        | Fact::Turn { .. }
        | Fact::Progress(_)
        | Fact::JobStarted { .. }
        | Fact::JobExited { .. }
        | Fact::Delivery { .. }
        | Fact::Learned { .. }
        | Fact::CompactionFailed { .. }
        | Fact::CompactionPaused { .. }
        | Fact::End(_) => Track::Loop,
    }
}

/// Whether a command is the tripwire's: no other one of spettro's own asks for settings.
pub fn asks_about_settings(run: &CommandRun) -> bool {
    run.purpose == Purpose::Git && run.label == "git config"
}

/// The part of a replay's answer that a fact belongs to.
pub fn aspect(fact: &Fact) -> super::Aspect {
    use super::Aspect;
    use crate::session::Origin;
    match fact {
        Fact::Message(Message::User { origin: Origin::Steer | Origin::Job, .. })
        | Fact::Delivery { .. }
        | Fact::JobExited { .. } => Aspect::Deliveries,
        Fact::Message(Message::Tool { .. })
        | Fact::Tool(_)
        | Fact::ToolStarted(_)
        | Fact::Recut { .. }
        | Fact::Tasks { .. }
        | Fact::JobStarted { .. } => Aspect::Tools,
        Fact::Call(_)
        | Fact::Settled(_)
        | Fact::Prune(_)
        | Fact::Compaction(_)
        | Fact::CompactionFailed { .. }
        | Fact::CompactionPaused { .. }
        | Fact::Learned { .. } => Aspect::Ledger,
        _ => Aspect::Events,
    }
}

/// What a fact is called in a report.
pub fn name(fact: &Fact) -> String {
    match fact {
        Fact::Message(Message::Tool { tool, .. }) => format!("result of {tool}"),
        Fact::Message(Message::User { .. }) => "message".to_owned(),
        Fact::Message(Message::Operator { .. }) => "note of the runner".to_owned(),
        Fact::Message(Message::Assistant { .. }) => "reply".to_owned(),
        Fact::Call(call) => format!("{} call {}", call.lane, call.n),
        Fact::Settled(settled) => format!("end of {} call {}", settled.lane, settled.n),
        Fact::ToolStarted(start) => format!("{} {}", start.tool, start.summary),
        Fact::Tool(done) => format!("end of {}", done.tool),
        Fact::Iteration { iteration } => format!("iteration {iteration}"),
        Fact::Turn { .. } => "end of the turn".to_owned(),
        Fact::Checks { .. } => "checks".to_owned(),
        Fact::Verdict { .. } => "verdict".to_owned(),
        Fact::Progress(_) => "progress".to_owned(),
        Fact::Baseline { .. } => "baseline".to_owned(),
        Fact::Run(_) => "start of a run".to_owned(),
        Fact::End(_) => "end of the run".to_owned(),
        Fact::Prune(_) | Fact::Compaction(_) => "compaction".to_owned(),
        Fact::CompactionFailed { .. } => "failed compaction".to_owned(),
        Fact::CompactionPaused { .. } => "pause of compaction".to_owned(),
        Fact::Tasks { .. } => "task list".to_owned(),
        Fact::Recut { .. } => "shorter result".to_owned(),
        Fact::Delivery { what, .. } => format!("delivery of {what}"),
        Fact::JobStarted { job, .. } => format!("start of {job}"),
        Fact::JobExited { job, .. } => format!("end of {job}"),
        _ => "fact".to_owned(),
    }
}
