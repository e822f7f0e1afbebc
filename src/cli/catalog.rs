//! `spettro models`: the built-in catalogue. Nothing is asked over the network.

use std::io::Write;

use super::args::ModelsArgs;
use super::failure::Failure;
use crate::event::{Micros, Outcome};
use crate::model::{Listed, listed};
use crate::world::RealEnv;

/// Lists what the catalogue knows, all of it or one provider's.
///
/// # Errors
/// A provider that the catalogue does not have.
pub fn models(args: &ModelsArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let all = listed(&RealEnv);
    let wanted = args.provider.as_deref();
    let rows: Vec<&Listed> = all.iter().filter(|row| wanted.is_none_or(|name| row.is_of(name))).collect();
    if let (true, Some(name)) = (rows.is_empty(), wanted) {
        return Err(Failure::new(Outcome::Usage, format!("the catalogue has no models of `{name}`")));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| Failure::new(Outcome::Internal, error))?;
        writeln!(out, "{text}")?;
        return Ok(Outcome::Met);
    }
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:<wide$}  {:<16}  {:>9}  {:>7}  {:>6}  {:>6}  key",
        "model", "wire", "window", "output", "$ in", "$ out"
    )?;
    for row in rows {
        let (input, output) = (Micros(row.price.input), Micros(row.price.output));
        let key = if row.key_set { "set" } else { "-" };
        writeln!(
            out,
            "{:<wide$}  {:<16}  {:>9}  {:>7}  {:>6}  {:>6}  {key}",
            row.name,
            row.wire.name(),
            row.window_tokens,
            row.max_output_tokens,
            input.to_string(),
            output.to_string()
        )?;
    }
    Ok(Outcome::Met)
}
