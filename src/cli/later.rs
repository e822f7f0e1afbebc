//! Flags of `spettro run` whose capability comes later.

use clap::Args;

/// Flags that are known and whose capability comes later: hidden, and refused by name.
#[derive(Debug, Clone, Default, Args)]
pub struct LaterArgs {
    #[arg(long, hide = true)]
    memory: Option<String>,
    #[arg(long, hide = true)]
    fork: bool,
    #[arg(long, hide = true)]
    at: Option<String>,
    #[arg(long, hide = true)]
    parallel: Option<String>,
    #[arg(long, hide = true)]
    shard: Option<String>,
    #[arg(long, hide = true)]
    run_dir: Option<String>,
    #[arg(long, hide = true)]
    max_total_cost: Option<String>,
    #[arg(long, hide = true)]
    filter: Option<String>,
    #[arg(long, hide = true)]
    list: bool,
    #[arg(long, hide = true)]
    ok_on: Option<String>,
    #[arg(long, hide = true)]
    force: bool,
    #[arg(long, hide = true)]
    preemptible: bool,
    #[arg(long, hide = true)]
    metrics_file: Option<String>,
}

impl LaterArgs {
    /// Those that were given.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--memory", self.memory.is_some()),
            ("--fork", self.fork),
            ("--at", self.at.is_some()),
            ("--parallel", self.parallel.is_some()),
            ("--shard", self.shard.is_some()),
            ("--run-dir", self.run_dir.is_some()),
            ("--max-total-cost", self.max_total_cost.is_some()),
            ("--filter", self.filter.is_some()),
            ("--list", self.list),
            ("--ok-on", self.ok_on.is_some()),
            ("--force", self.force),
            ("--preemptible", self.preemptible),
            ("--metrics-file", self.metrics_file.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}
