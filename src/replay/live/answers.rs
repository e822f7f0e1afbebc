//! Tools that really ran, against what they gave when they were recorded.

use std::path::Path;
use std::rc::Rc;

use super::super::answers::TapeAnswers;
use super::super::cursor::Cursor;
use super::super::diff::{diff, guess};
use super::super::finding::{Aspect, Divergence, Guess};
use super::super::ground::Ground;
use super::LiveExec;
use crate::tools::{Answer, Answers, ToolCall};
use crate::world::Boxed;

/// Tools whose results tell how long something took: that is no difference.
const TELL_TIMES: [&str; 3] = ["wait", "job-output", "job-kill"];

pub struct LiveAnswers {
    pub tape: TapeAnswers,
    pub exec: Rc<LiveExec>,
    pub cursor: Rc<Cursor>,
    pub ground: Rc<Ground>,
}

impl Answers for LiveAnswers {
    fn answer<'a>(&'a self, call: &'a ToolCall) -> Boxed<'a, Answer> {
        Box::pin(async move {
            let answer = self.tape.recorded(call).await;
            if let Some(place) = self.cursor.tool(&call.id) {
                self.exec.ended_behind(place).await;
            }
            answer
        })
    }

    fn runs_too(&self, _path: &str) -> bool {
        true
    }

    fn in_earnest(&self) -> bool {
        true
    }

    /// The first result that differs is where the replay ends.
    fn ran(&self, call: &ToolCall, told: &Answer, real: &Answer) {
        if self.cursor.stop.get().is_some() {
            return;
        }
        let times = TELL_TIMES.contains(&call.name.as_str()) && guess(&told.text, &real.text) == Some(Guess::Clock);
        let text = told.text == real.text || times;
        if text && told.status == real.status && told.marks == real.marks && told.changed == real.changed {
            return self.ground.same();
        }
        let what = match told.status == real.status {
            true => format!("{} gives something else", call.name),
            false => format!("{} is {} instead of {}", call.name, real.status.name(), told.status.name()),
        };
        let divergence = self.cursor.differs(Aspect::Tools, format!("{what}{}", named(call)));
        let guess = guess(&told.text, &real.text).unwrap_or(Guess::ToolResult);
        self.cursor.fatal(Divergence { diff: diff(&told.text, &real.text), guess, ..divergence });
    }
}

/// The file that a call is about, or the job.
fn named(call: &ToolCall) -> String {
    let arguments: Option<serde_json::Value> = serde_json::from_str(&call.arguments).ok();
    let name = arguments.as_ref().and_then(|given| given.get("path").or(given.get("job_id"))?.as_str());
    name.map_or(String::new(), |name| format!(": `{}`", Path::new(name).display()))
}
