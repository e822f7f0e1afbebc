//! Which outputs of the spool a log names.

use std::collections::BTreeMap;

use super::facts::{Fact, Line};

/// The spool ids that facts name, with the lengths of their bodies where they are known.
pub(super) fn spooled(lines: &[Line]) -> BTreeMap<u64, Option<u64>> {
    let mut ids = BTreeMap::new();
    for line in lines {
        match &line.fact {
            Fact::Tool(done) => ids.extend(done.spool.map(|id| (id, done.spool_bytes))),
            Fact::Checks { results, .. } => {
                ids.extend(results.iter().filter_map(|result| result.spool).map(|id| (id, None)));
            }
            // A tool's or a check's own text, whose length its fact tells, or one that only the command's fact names.
            Fact::Command(run) => {
                if let Some(id) = run.output.spool {
                    ids.entry(id).or_insert(None);
                }
            }
            _ => {}
        }
    }
    ids
}
