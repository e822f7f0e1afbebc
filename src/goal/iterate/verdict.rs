//! The verdict on what stands, by checks and judge together.

use super::super::failure::{Cause, cause};
use super::super::judge::{Court, Judged};
use super::super::packet::{Evidence, packet};
use super::Loop;
use crate::event::{CheckResult, CheckStatus, Lane, Outcome, TurnEnd, Verdict, VerdictBy, VerdictKind};
use crate::session::Message;
use crate::turn::Ended;

impl Loop {
    /// The verdict on what stands; `None` when there is nobody to give one.
    pub(super) async fn verdict(
        &mut self,
        results: &[CheckResult],
        ask_anyway: bool,
        turn_end: Option<TurnEnd>,
    ) -> Result<Option<Verdict>, Cause> {
        let iteration = self.standing.iteration;
        let failing = results.iter().find(|result| result.required && result.status != CheckStatus::Pass);
        let by_checks = |kind, reason: String, next_step: String| Verdict {
            kind,
            by: VerdictBy::Checks,
            iteration,
            reason,
            next_step,
            criteria: Vec::new(),
        };
        let failed = failing.map(|result| {
            let exit = result.exit_code.map_or(result.status.name().to_owned(), |code| format!("exit {code}"));
            let others = results.iter().filter(|r| r.required && r.status != CheckStatus::Pass).count() - 1;
            let more = if others > 0 { format!(", and {others} more") } else { String::new() };
            format!("check `{}` does not pass ({exit}){more}", result.name)
        });
        let (Some(bench), Some(judge)) = (&self.judge, &self.config.judge) else {
            return Ok(Some(match failed {
                Some(reason) => by_checks(VerdictKind::Unmet, reason, String::new()),
                None => by_checks(VerdictKind::Met, "all required checks pass".to_owned(), String::new()),
            }));
        };
        if let (Some(reason), false) = (&failed, ask_anyway) {
            return Ok(Some(by_checks(VerdictKind::Unmet, reason.clone(), String::new())));
        }
        let changes = self.halt.run(self.changes()).await;
        let (changes, patch) = changes.map_err(|why| cause(&Ended::Halted(why)))?;
        let messages: Vec<Message> = self.agent.recent().cloned().collect();
        let jobs: Vec<String> =
            self.world.exec.jobs().iter().map(|job| format!("{} {:?} {}", job.id, job.state, job.command)).collect();
        let spent = self.gateway.ledger(crate::model::Ledger::spent);
        let steps = self.gateway.ledger(|ledger| ledger.calls(Lane::Agent));
        let limits = format!("{steps} of {} steps and {spent} dollars are used.", self.config.limits.steps);
        let note = match turn_end {
            Some(TurnEnd::Stuck) => Some("it repeated the same call with the same result and was stopped"),
            Some(TurnEnd::Budget) => Some("its steps were used up"),
            _ => None,
        };
        let text = packet(
            &Evidence {
                goal: &self.config.goal,
                criteria: &self.config.criteria,
                iteration,
                of: self.config.limits.iterations,
                checks: results,
                changes: &changes,
                patch: &String::from_utf8_lossy(&patch),
                tasks: self.agent.tools().tasks(),
                jobs: &jobs,
                messages: &messages,
                final_text: &self.standing.last_text,
                last_verdict: self.standing.verdict.as_ref(),
                turn_note: note,
                limits: &limits,
            },
            bench.endpoint.window_tokens,
            self.gateway.factor(Lane::Judge),
        );
        let court = Court {
            gateway: &self.gateway,
            endpoint: &bench.endpoint,
            head: &bench.head,
            timeout: judge.timeout,
            retries: judge.retries,
            votes: judge.votes,
            criteria: self.config.criteria.len() as u64,
            iteration,
        };
        let judged = court.judge(&text).await.map_err(|error| {
            let ended = match error {
                crate::model::CallError::Halted { why, .. } => Ended::Halted(why),
                crate::model::CallError::Session(error) => Ended::Session(error),
                other => Ended::Call(other),
            };
            cause(&ended)
        })?;
        match judged {
            Judged::Verdict(verdict) => Ok(Some(match failed {
                // A failed check is settled: the judge may give it up, it may not wave it through.
                Some(reason) if verdict.kind == VerdictKind::Met => Verdict {
                    kind: VerdictKind::Unmet,
                    reason: format!("{reason}. The judge adds: {}", verdict.reason),
                    ..verdict
                },
                _ => verdict,
            })),
            Judged::Failed(why) => {
                Err(Cause::new(Outcome::JudgeFailed, format!("the judge gave no usable verdict: {why}")))
            }
        }
    }
}
