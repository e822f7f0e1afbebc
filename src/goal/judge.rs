//! The judge: a bounded packet, a forced tool call, repairs, votes, and a second opinion on `impossible`.
//!
//! Invariant: what is not a verdict is never taken for one, and a limit, signal or error inside a judge call ends the
//! run as that.

use std::time::Duration;

use serde_json::Value;

use super::packet::{SYSTEM, VERDICT_SCHEMA};
use crate::event::{CriterionResult, Lane, Verdict, VerdictBy, VerdictKind};
use crate::model::{Ask, CallError, Conversation, Endpoint, Gateway, ModelError, Reply, Stop, ToolSchema};
use crate::session::{Block, Message, Origin};

/// How a verdict is asked for.
pub struct Court<'a> {
    pub gateway: &'a Gateway,
    pub endpoint: &'a Endpoint,
    /// The frozen head of a judge request.
    pub head: &'a str,
    pub timeout: Duration,
    pub retries: u64,
    pub votes: u64,
    pub criteria: u64,
    pub iteration: u64,
}

/// What asking gave.
#[derive(Debug)]
pub enum Judged {
    Verdict(Verdict),
    /// No usable verdict after the repairs.
    Failed(String),
}

/// The tool that a judge must call.
pub fn tool() -> ToolSchema {
    ToolSchema {
        name: "verdict",
        description: "Give the verdict on the goal.".to_owned(),
        parameters: serde_json::value::RawValue::from_string(VERDICT_SCHEMA.to_owned())
            .unwrap_or_else(|_| unreachable!("the schema is a constant, parsed by a test")),
    }
}

/// The head of every judge request.
pub fn head(endpoint: &Endpoint) -> String {
    endpoint.wire.head(SYSTEM, &[tool()])
}

impl Court<'_> {
    /// Asks for a verdict: once, or `votes` times; `impossible` needs two independent answers.
    ///
    /// # Errors
    /// When a call ends the run.
    pub async fn judge(&self, packet: &str) -> Result<Judged, CallError> {
        if self.votes > 1 {
            return self.vote(packet).await;
        }
        let first = match self.ask(packet, self.retries).await? {
            Judged::Verdict(verdict) => verdict,
            failed => return Ok(failed),
        };
        if first.kind != VerdictKind::Impossible {
            return Ok(Judged::Verdict(first));
        }
        Ok(match self.ask(packet, self.retries).await? {
            Judged::Verdict(second) if second.kind == VerdictKind::Impossible => Judged::Verdict(first),
            Judged::Verdict(second) => Judged::Verdict(Verdict {
                kind: VerdictKind::Unmet,
                reason: format!(
                    "two judgements disagree. Impossible: {} · {}: {}",
                    first.reason,
                    second.kind.name(),
                    second.reason
                ),
                ..second
            }),
            failed => failed,
        })
    }

    async fn vote(&self, packet: &str) -> Result<Judged, CallError> {
        let mut verdicts: Vec<Verdict> = Vec::new();
        let mut last_failure = String::new();
        for _ in 0..self.votes {
            // An unusable reply is no vote; it is not repaired, the other votes are there for that.
            match self.ask(packet, 0).await? {
                Judged::Verdict(verdict) => verdicts.push(verdict),
                Judged::Failed(why) => last_failure = why,
            }
        }
        if verdicts.is_empty() {
            return Ok(Judged::Failed(last_failure));
        }
        let count = |kind| verdicts.iter().filter(|verdict| verdict.kind == kind).count() as u64;
        let kinds = [VerdictKind::Met, VerdictKind::Unmet, VerdictKind::Impossible];
        let majority = kinds.into_iter().find(|kind| count(*kind) * 2 > self.votes);
        let reasons =
            verdicts.iter().map(|v| format!("{}: {}", v.kind.name(), v.reason)).collect::<Vec<_>>().join(" · ");
        let verdict = match majority.and_then(|kind| verdicts.iter().find(|verdict| verdict.kind == kind)) {
            Some(verdict) => verdict.clone(),
            None => {
                let next_step =
                    verdicts.iter().map(|v| v.next_step.clone()).find(|s| !s.is_empty()).unwrap_or_default();
                Verdict {
                    kind: VerdictKind::Unmet,
                    by: VerdictBy::Judge,
                    iteration: self.iteration,
                    reason: format!("no majority of {} votes. {reasons}", self.votes),
                    next_step,
                    criteria: Vec::new(),
                }
            }
        };
        Ok(Judged::Verdict(verdict))
    }

    /// One verdict, with repairs that quote what was wrong.
    async fn ask(&self, packet: &str, retries: u64) -> Result<Judged, CallError> {
        let fresh = || {
            let mut conversation = Conversation::new(self.endpoint.wire, self.head, self.gateway.factor(Lane::Judge));
            conversation.seal(&[Message::User { origin: Origin::Prompt, text: packet.to_owned() }]);
            conversation
        };
        let mut conversation = fresh();
        let mut forced = self.endpoint.force_tool;
        let mut repairs = 0;
        loop {
            let ask = Ask {
                lane: Lane::Judge,
                endpoint: self.endpoint,
                force_tool: forced.then_some("verdict"),
                attempt_timeout: Some(self.timeout),
                entry: false,
                patience: None,
            };
            let reply = match self.gateway.call(&mut conversation, &ask).await {
                Ok(reply) => reply,
                // Some servers cannot force a tool: ask without, and take JSON in text.
                Err(CallError::Model(ModelError::InvalidRequest(_))) if forced => {
                    forced = false;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let problem = match read(&reply, self.criteria, self.iteration) {
                Ok(verdict) => return Ok(Judged::Verdict(verdict)),
                Err(problem) => problem,
            };
            if repairs == retries {
                return Ok(Judged::Failed(problem));
            }
            repairs += 1;
            if matches!(reply.stop, Stop::Refused(_)) || reply.stop == Stop::MaxTokens || reply.blocks.is_empty() {
                conversation = fresh();
                continue;
            }
            conversation.seal(&repair(&reply, &problem));
        }
    }
}

/// The unusable reply and what was wrong with it, as the next messages of the same conversation.
fn repair(reply: &Reply, problem: &str) -> Vec<Message> {
    let text = format!(
        "That was no usable verdict: {problem}. Answer with one call of the tool `verdict`, or with one JSON object \
         {{\"verdict\": \"met\" | \"unmet\" | \"impossible\", \"reason\": …, \"next_step\": …, \"criteria\": …}}."
    );
    let mut messages = vec![Message::Assistant { blocks: reply.blocks.clone(), interrupted: false, refused: None }];
    let mut answered = false;
    for block in &reply.blocks {
        if let Block::Call { id, name, .. } = block {
            answered = true;
            messages.push(Message::Tool {
                call_id: id.clone(),
                tool: name.clone(),
                text: text.clone(),
                is_error: true,
            });
        }
    }
    if !answered {
        messages.push(Message::User { origin: Origin::Goal, text });
    }
    messages
}

/// Reads a verdict from a reply: the tool call, else the last complete object with a `verdict` in its text.
fn read(reply: &Reply, criteria: u64, iteration: u64) -> Result<Verdict, String> {
    if let Stop::Refused(details) = &reply.stop {
        return Err(format!("the judge declined: {details}"));
    }
    let calls = reply.calls().filter(|(_, name, _)| name.trim().eq_ignore_ascii_case("verdict"));
    let given: Result<Vec<Verdict>, String> = calls
        .map(|(_, _, arguments)| {
            let value = serde_json::from_str::<Value>(arguments)
                .map_err(|error| format!("the arguments of `verdict` are not JSON ({error})"))?;
            verdict(&value, criteria, iteration)
        })
        .collect();
    let mut given = given?.into_iter();
    let Some(first) = given.next() else {
        let value = last_object(&reply.text()).ok_or_else(|| "it holds no verdict".to_owned())?;
        return verdict(&value, criteria, iteration);
    };
    match given.find(|other| other.kind != first.kind) {
        Some(other) => Err(format!("it says both {} and {}", first.kind.name(), other.kind.name())),
        None => Ok(first),
    }
}

fn verdict(value: &Value, criteria: u64, iteration: u64) -> Result<Verdict, String> {
    let word = value.get("verdict").and_then(Value::as_str).ok_or("`verdict` is missing")?;
    let mut kind = match word.trim().to_lowercase().as_str() {
        "met" => VerdictKind::Met,
        "unmet" => VerdictKind::Unmet,
        "impossible" => VerdictKind::Impossible,
        _ => return Err(format!("`{}` is no verdict", super::packet::excerpt(word, 40))),
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("").trim().to_owned();
    let (mut reason, next_step) = (text("reason"), text("next_step"));
    let mut answers = Vec::new();
    match value.get("criteria") {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) => {
            for item in items {
                let index = item.get("index").and_then(Value::as_u64).ok_or("a criterion has no `index`")?;
                let met = item.get("met").and_then(Value::as_bool).ok_or("a criterion has no `met`")?;
                if criteria == 0 {
                    // Made up by the judge, so there is nothing to answer; but who finds one unmet does not say met.
                    if !met && kind == VerdictKind::Met {
                        kind = VerdictKind::Unmet;
                        reason = format!("the judge found a criterion of its own unmet. {reason}");
                    }
                    continue;
                }
                // An answer to what was not asked says nothing about the goal.
                if index == 0 || index > criteria {
                    continue;
                }
                if answers.iter().any(|answer: &CriterionResult| answer.index == index) {
                    return Err(format!("criterion {index} is answered twice"));
                }
                let evidence = item.get("evidence").and_then(Value::as_str).unwrap_or("").trim().to_owned();
                answers.push(CriterionResult { index, met, evidence });
            }
        }
        Some(_) => return Err("`criteria` is not a list".to_owned()),
    }
    answers.sort_by_key(|answer| answer.index);
    if kind == VerdictKind::Met {
        if let Some(missing) = (1..=criteria).find(|index| !answers.iter().any(|answer| answer.index == *index)) {
            return Err(format!("criterion {missing} is not answered"));
        }
        if let Some(answer) = answers.iter().find(|answer| !answer.met) {
            kind = VerdictKind::Unmet;
            reason = format!("criterion {} is not met: {}. {reason}", answer.index, answer.evidence);
        }
    }
    if reason.is_empty() {
        return Err("`reason` is missing".to_owned());
    }
    Ok(Verdict { kind, by: VerdictBy::Judge, iteration, reason, next_step, criteria: answers })
}

/// The last complete JSON object in a text that has a `verdict`; braces in prose before it do no harm.
fn last_object(text: &str) -> Option<Value> {
    let starts: Vec<usize> = text.char_indices().filter(|(_, c)| *c == '{').map(|(index, _)| index).collect();
    // An object that lies inside another one is that one's business: of all that parse, the one that ends last and
    // starts first among those. From the end, since that is where it is looked for.
    let mut best: Option<(usize, Value)> = None;
    for start in starts.into_iter().rev().take(2_000) {
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let Some(Ok(value)) = stream.next() else { continue };
        let end = start + stream.byte_offset();
        if value.get("verdict").is_some() && best.as_ref().is_none_or(|(last, _)| end >= *last) {
            best = Some((end, value));
        }
    }
    best.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        Reply {
            blocks: vec![Block::Text { text: text.to_owned() }],
            stop: Stop::End,
            usage: None,
            model: None,
            input_transformations: None,
        }
    }

    fn called(arguments: &str) -> Reply {
        let block = Block::Call { id: "1".into(), name: "verdict".into(), arguments: arguments.to_owned() };
        Reply { blocks: vec![block], stop: Stop::ToolUse, usage: None, model: None, input_transformations: None }
    }

    fn kind(text: &str) -> Option<VerdictKind> {
        read(&reply(text), 0, 1).ok().map(|verdict| verdict.kind)
    }

    #[test]
    fn the_schema_is_json() {
        assert_eq!(tool().name, "verdict");
    }

    #[test]
    fn prose_fences_case_and_several_objects_are_read_right() {
        assert_eq!(kind(r#"Since {x} holds: {"verdict":"met","reason":"ok"}"#), Some(VerdictKind::Met));
        assert_eq!(
            kind("{\"verdict\":\"met\",\"reason\":\"a\"}\nno:\n{\"verdict\":\"unmet\",\"reason\":\"b\"}"),
            Some(VerdictKind::Unmet)
        );
        assert_eq!(kind("```json\n{\"verdict\": \" MET \", \"reason\": \"ok\"}\n```"), Some(VerdictKind::Met));
        assert_eq!(kind(r#"{"a":{"verdict":"unmet","reason":"x"}}"#), Some(VerdictKind::Unmet));
    }

    #[test]
    fn what_is_no_verdict_is_none() {
        for text in ["I think so", "", "met", r#"{"verdict":"maybe","reason":"x"}"#, r#"{"verdict":"met""#, "{}"] {
            assert_eq!(kind(text), None, "{text:?}");
        }
        assert!(read(&called("{\"verdict\":"), 0, 1).is_err());
        let refused = Reply { stop: Stop::Refused("policy".into()), ..called(r#"{"verdict":"met","reason":"x"}"#) };
        assert!(read(&refused, 0, 1).is_err());
    }

    #[test]
    fn met_with_an_unmet_criterion_is_unmet_and_with_a_missing_one_no_verdict() {
        let both = r#"{"verdict":"met","reason":"x","criteria":[{"index":1,"met":true},{"index":2,"met":false,"evidence":"no docs"}]}"#;
        let verdict = read(&called(both), 2, 3).expect("it is a verdict");
        assert_eq!((verdict.kind, verdict.iteration), (VerdictKind::Unmet, 3));
        assert!(verdict.reason.contains("criterion 2 is not met: no docs"));
        assert!(read(&called(both), 3, 1).is_err());
        assert!(read(&called(r#"{"verdict":"met","reason":"x","criteria":[{"index":9,"met":true}]}"#), 2, 1).is_err());
        let unasked = r#"{"verdict":"met","reason":"x","criteria":[{"index":1,"met":false}]}"#;
        assert_eq!(read(&called(unasked), 0, 1).map(|verdict| verdict.kind), Ok(VerdictKind::Unmet));
    }

    #[test]
    fn the_last_verdict_is_found_behind_any_number_of_braces() {
        let text = format!("{} so {{\"verdict\":\"unmet\",\"reason\":\"r\"}}", "{x} ".repeat(5_000));
        assert_eq!(kind(&text), Some(VerdictKind::Unmet));
        let inner = r#"{"reason":"r","verdict":"unmet","criteria":[],"quoted":{"verdict":"met","reason":"x"}}"#;
        assert_eq!(kind(inner), Some(VerdictKind::Unmet));
        // As deep as a stack could be made to grow.
        assert_eq!(kind(&"{\"a\":".repeat(100_000)), None);
    }

    #[test]
    fn two_calls_that_disagree_are_no_verdict() {
        let call = |verdict: &str| Block::Call {
            id: verdict.to_owned(),
            name: "verdict".into(),
            arguments: format!(r#"{{"verdict":"{verdict}","reason":"x"}}"#),
        };
        let both = |a: &str, b: &str| Reply { blocks: vec![call(a), call(b)], ..called("{}") };
        assert!(read(&both("met", "unmet"), 0, 1).is_err_and(|why| why.contains("both met and unmet")));
        assert!(read(&both("met", "met"), 0, 1).is_ok_and(|verdict| verdict.kind == VerdictKind::Met));
    }

    #[test]
    fn criteria_that_the_judge_made_up_are_no_reason_to_throw_its_verdict_away() {
        let made_up =
            |met: bool| called(&format!(r#"{{"verdict":"met","reason":"x","criteria":[{{"index":1,"met":{met}}}]}}"#));
        let verdict = read(&made_up(true), 0, 1).expect("a verdict");
        assert_eq!((verdict.kind, verdict.criteria.len()), (VerdictKind::Met, 0));
        assert_eq!(read(&made_up(false), 0, 1).expect("a verdict").kind, VerdictKind::Unmet);
    }
}
