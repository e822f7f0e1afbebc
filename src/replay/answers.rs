//! What the tools gave that look at the workspace or wait for jobs.

use std::rc::Rc;

use super::cursor::Cursor;
use super::finding::Aspect;
use super::ground::Ground;
use crate::event::ToolStatus;
use crate::session::{Fact, Message, ToolDone};
use crate::tools::{Answer, Answers, ToolCall};
use crate::world::Boxed;

pub struct TapeAnswers {
    pub cursor: Rc<Cursor>,
    pub ground: Rc<Ground>,
}

impl TapeAnswers {
    pub async fn recorded(&self, call: &ToolCall) -> Answer {
        let cursor = &self.cursor;
        let Some(place) = cursor.tool(&call.id) else {
            let text = format!("the recording holds no end of the tool call `{}`", call.id);
            cursor.miss_for_good(cursor.differs(Aspect::Tools, text));
            return std::future::pending().await;
        };
        let Fact::Tool(done) = cursor.part.fact(place) else { return std::future::pending().await };
        if done.status == ToolStatus::Interrupted {
            // It never ended by itself.
            return std::future::pending().await;
        }
        cursor.reach(place).await;
        let Some(text) = self.text(place, done) else { return std::future::pending().await };
        Answer {
            status: done.status,
            text,
            output_bytes: done.output_bytes,
            marks: done.marks.clone(),
            changed: done.changed.clone(),
        }
    }

    /// The whole text: from the spool, or where it was short, from the message. `None` where the recording holds it no
    /// more; then the replay has ended, or does when nothing else can happen.
    fn text(&self, place: usize, done: &ToolDone) -> Option<String> {
        let cursor = &self.cursor;
        if let Some(id) = done.spool {
            let why = match cursor.part.tape.spool(id) {
                Ok(Some(bytes)) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
                Ok(None) => format!("the output {id} of {} is not in the recording", done.tool),
                Err(error) => format!("the output {id} of {} cannot be read: {error}", done.tool),
            };
            cursor.run_out(why);
            return None;
        }
        let next = cursor.part.loops.iter().skip(cursor.part.loops.partition_point(|&at| at <= place));
        let text = next.map(|&at| cursor.part.fact(at)).find_map(|fact| match fact {
            Fact::Message(Message::Tool { call_id, text, .. }) if *call_id == done.call_id => Some(text.clone()),
            _ => None,
        });
        if text.is_none() {
            // It was to be written with the end of the call. A run that died between them went no further.
            let text = format!("the recording holds no result of the tool call `{}`", done.call_id);
            cursor.miss_for_good(cursor.differs(Aspect::Tools, text));
        }
        text
    }
}

impl Answers for TapeAnswers {
    fn answer<'a>(&'a self, call: &'a ToolCall) -> Boxed<'a, Answer> {
        Box::pin(self.recorded(call))
    }

    fn runs_too(&self, path: &str) -> bool {
        // What has happened before the call has happened in the scratch copy, too.
        self.ground.advance(&self.cursor.part, self.cursor.here());
        self.ground.look(&self.cursor.part, path);
        true
    }

    fn ran(&self, call: &ToolCall, told: &Answer, real: &Answer) {
        self.ground.compare(&self.cursor, call, told, real);
    }
}
