//! The built program in a folder of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Result;
use crate::provider::Provider;

/// One run that is about to start.
pub struct Launch<'a> {
    provider: &'a Provider,
    spettro: &'a Path,
    folder: tempfile::TempDir,
}

/// What was seen of a run.
pub struct Seen {
    /// From the start of the process to its first request.
    pub first_request: Option<Duration>,
    pub gaps: Vec<Duration>,
    pub sizes: Sizes,
}

/// The most memory that was resident, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sizes {
    pub runner: u64,
    pub helper: u64,
}

impl Sizes {
    pub fn most(self, other: &Sizes) -> Sizes {
        Sizes { runner: self.runner.max(other.runner), helper: self.helper.max(other.helper) }
    }
}

impl<'a> Launch<'a> {
    pub fn new(provider: &'a Provider, spettro: &'a Path) -> Result<Launch<'a>> {
        let folder = tempfile::tempdir()?;
        for name in ["home", "work", "tmp"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let goal = format!(
            "version: 1\n\
             name: bench\n\
             goal: Run every step.\n\
             workspace: work\n\
             providers:\n  loopback: {{ wire: anthropic, base_url: \"http://{}\" }}\n\
             model: {{ provider: loopback, id: bench, context_window: 4000000, max_output_tokens: 4096 }}\n\
             limits: {{ iterations: 1, steps: 10000, steps_per_iteration: 10000 }}\n",
            provider.address()
        );
        std::fs::write(folder.path().join("goal.yaml"), goal)?;
        Ok(Launch { provider, spettro, folder })
    }

    /// Runs to the verdict, `steps` steps later. The provider expects it already.
    pub fn run(self, steps: usize) -> Result<Seen> {
        let (sender, sizes) = mpsc::channel();
        let started = Instant::now();
        let child = Command::new(self.spettro)
            .args(["run", "--quiet", "--goal", "goal.yaml"])
            .current_dir(self.folder.path())
            .env_clear()
            .envs(environment(self.folder.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = child.id();
        if steps > 0 {
            self.provider.at_step(steps, move || {
                // Without a receiver the bench is over.
                let _ = sender.send(memory(pid));
            });
        }
        let output = child.wait_with_output()?;
        let (first, gaps) = self.provider.ended();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("spettro ended with {}: {said}", output.status).into());
        }
        if gaps.len() != steps {
            return Err(format!("{} steps were seen where {steps} were due", gaps.len()).into());
        }
        Ok(Seen {
            first_request: first.map(|first| first.saturating_duration_since(started)),
            gaps,
            sizes: sizes.try_recv().unwrap_or_default(),
        })
    }
}

/// The environment of either client.
pub fn environment(folder: &Path) -> [(&'static str, OsString); 3] {
    [
        ("PATH", std::env::var_os("PATH").unwrap_or_default()),
        ("HOME", folder.join("home").into_os_string()),
        ("TMPDIR", folder.join("tmp").into_os_string()),
    ]
}

/// The time of one `--version`.
pub fn version(spettro: &Path) -> Result<Duration> {
    let started = Instant::now();
    let output = Command::new(spettro).arg("--version").env_clear().stdin(Stdio::null()).output()?;
    let took = started.elapsed();
    if output.status.success() { Ok(took) } else { Err("`spettro --version` failed".into()) }
}

fn memory(runner: u32) -> Sizes {
    let task = format!("/proc/{runner}/task/{runner}/children");
    let children = std::fs::read_to_string(task).unwrap_or_default();
    let helper = children.split_whitespace().filter_map(|child| child.parse().ok()).map(peak).max();
    Sizes { runner: peak(runner), helper: helper.unwrap_or(0) }
}

/// `VmHWM` in KiB; 0 when the process is gone.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
