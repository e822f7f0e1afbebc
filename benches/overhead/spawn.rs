//! A supervised command beside a plain spawn, with a small and with a large heap in the runner.
//!
//! Measured in a fresh process: what starts commands has to be made before there are threads.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spettro::process::ProcessOptions;
use spettro::process::sandbox::{KeyPlaces, Places, Policy, Wanted};
use spettro::world::{CommandKind, Ending, Exec};

use crate::{Result, median};

const ROUNDS: usize = 500;
const HEAPS_MIB: [usize; 2] = [0, 1024];
const PROGRAM: &str = "/bin/echo";

/// Medians.
pub struct Spawn {
    pub heap_mib: usize,
    pub plain: Duration,
    pub ours: Duration,
    /// The same in a sandbox.
    pub confined: Duration,
}

/// Starts this program again and reads what it measured.
pub fn measure(spettro: &Path) -> Result<Vec<Spawn>> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--spawn-inside")
        .arg(spettro)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the spawns could not be measured".into());
    }
    String::from_utf8(output.stdout)?
        .lines()
        .map(|line| {
            let mut numbers = line.split(' ');
            let mut number =
                || numbers.next().ok_or("too few numbers")?.parse::<u64>().map_err(|error| error.to_string());
            let heap_mib = number()? as usize;
            let mut time = || number().map(Duration::from_nanos);
            Ok(Spawn { heap_mib, plain: time()?, ours: time()?, confined: time()? })
        })
        .collect()
}

/// One line a heap size: its MiB, then the medians in ns.
pub fn inside(words: &[String]) -> Result<()> {
    let spettro = PathBuf::from(words.first().ok_or("which program?")?);
    let path = std::env::var("PATH").unwrap_or_default();
    let options = ProcessOptions {
        executable: spettro,
        environment: vec![("PATH".to_owned(), path)],
        run_id: "bench".to_owned(),
        ..ProcessOptions::default()
    };
    let process = spettro::process::start(options.clone())?;
    // A runner of its own, so that both are measured in turns.
    let confining = spettro::process::start(options)?;
    let folder = tempfile::tempdir()?;
    let (workspace, home) = (folder.path().canonicalize()?, std::env::var("HOME").map(PathBuf::from).ok());
    let level = confining.confine(&Policy::new(
        &Wanted::default(),
        &Places {
            workspace: &workspace,
            project: &workspace,
            home: home.as_deref(),
            account_home: None,
            stores: Vec::new(),
            goal_file: None,
            keys: &KeyPlaces::default(),
            temporary: &workspace,
            variable: &|_| None,
        },
    )?)?;
    writeln!(std::io::stderr(), "the sandbox is: {level}")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for heap_mib in HEAPS_MIB {
            // Written to, so that it is really there.
            let heap = vec![1u8; heap_mib << 20];
            let (mut plain, mut ours, mut confined) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let begun = Instant::now();
                let child = Command::new(PROGRAM).arg("x").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
                let output = child.wait_with_output()?;
                plain.push(begun.elapsed());
                let begun = Instant::now();
                let finished = process.run(echo()).await?;
                ours.push(begun.elapsed());
                if finished.ending != Ending::Exited(0) || finished.output.head != output.stdout {
                    return Err("a command went wrong".into());
                }
                let begun = Instant::now();
                let finished = confining.run(echo()).await?;
                confined.push(begun.elapsed());
                if finished.ending != Ending::Exited(0) || finished.output.head != output.stdout {
                    return Err("a confined command went wrong".into());
                }
            }
            std::hint::black_box(&heap);
            let [plain, ours, confined] = [plain, ours, confined].map(|times| median(&times).as_nanos());
            writeln!(std::io::stdout(), "{heap_mib} {plain} {ours} {confined}")?;
        }
        confining.shutdown(Duration::ZERO).await;
        process.shutdown(Duration::ZERO).await;
        Ok(())
    })
}

fn echo() -> spettro::world::Command {
    spettro::world::Command {
        kind: CommandKind::Tool,
        argv: vec![PROGRAM.to_owned(), "x".to_owned()],
        cwd: PathBuf::from("/"),
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        grace: Duration::from_secs(2),
        keep_bytes: 2 << 20,
        label: "echo x".to_owned(),
    }
}
