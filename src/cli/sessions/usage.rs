//! `spettro sessions usage`: calls, tokens and money of a session, from its log.

use std::io::Write;
use std::path::Path;

use super::plain;
use crate::cli::failure::Failure;
use crate::event::{Limits, Micros, UsageBy};
use crate::model::Ledger;
use crate::report::count;

/// Shows what a session has used; calls without a settlement count with their reservation.
///
/// # Errors
/// A log that cannot be read.
pub fn usage(dir: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let (header, _, state) = super::read(dir)?;
    let none = Limits {
        iterations: 0,
        steps: 0,
        steps_per_iteration: 0,
        cost: None,
        tokens: None,
        time_ms: None,
        idle_ms: None,
        command_ms: 0,
        stall: 0,
        consecutive_errors: 0,
    };
    let ledger = Ledger::fold(&none, &state.calls);
    if json {
        let value = serde_json::json!({
            "session_id": header.id,
            "calls": ledger.all_calls(),
            "tokens": ledger.tokens(),
            "total_cost_usd": ledger.spent().dollars(),
            "by_lane": ledger.by_lane(),
            "by_model": ledger.by_model(),
            "unreported_calls": ledger.unreported(),
        });
        return super::json(out, &value);
    }
    table("lane", ledger.by_lane(), out)?;
    writeln!(out)?;
    table("model", ledger.by_model(), out)?;
    let (calls, tokens) = (count(ledger.all_calls(), "call"), count(ledger.tokens(), "token"));
    writeln!(out, "\n{calls}, {tokens}, {} dollars", ledger.spent())?;
    let unsettled: Micros = ledger.unreported().iter().map(|call| call.charged).sum();
    if unsettled > Micros::ZERO {
        writeln!(out, "of these {unsettled} dollars are bounds of calls whose usage was never reported")?;
    }
    Ok(())
}

fn table(name: &str, rows: &UsageBy, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{name:<40} {:>7} {:>12} {:>12} {:>10}", "calls", "input", "output", "dollars")?;
    for (name, row) in rows {
        let (name, cost) = (plain(name, 40), row.cost.to_string());
        let (input, output) = (row.usage.input_tokens, row.usage.output_tokens);
        writeln!(out, "{name:<40} {:>7} {input:>12} {output:>12} {cost:>10}", row.calls)?;
    }
    Ok(())
}
