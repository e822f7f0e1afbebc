//! Who vouches for a goal file that lies in the repository it is about.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;

use super::confine::{self, Ground};
use super::failure::Failure;
use crate::goal::Problem;
use crate::model::Http;
use crate::process::sandbox::{Files, KeyPlaces, Wanted};
use crate::process::{self, EnvPolicy, ProcessOptions};
use crate::workspace::{Git, Named, repository_top};
use crate::world::{Env, Exec, RealClock, RealDir, RealEnv, RealIds, Roots, Secrets, World, home_dir};

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Trust")]
pub struct TrustArgs {
    /// Accept what a goal file inside the repository may not set by itself
    #[arg(long, help_heading = "Trust")]
    pub trust_goal: bool,

    /// The same, when the goal file is what it is at this commit, branch or tag
    #[arg(long, value_name = "REF", conflicts_with = "trust_goal", help_heading = "Trust")]
    pub trusted_ref: Option<String>,
}

impl TrustArgs {
    /// What is left to be found out about these keys: nothing, when there are none or somebody vouches for them.
    ///
    /// # Errors
    /// The keys, when nobody does.
    pub fn doubt(&self, untrusted: Vec<Problem>) -> Result<Option<Doubt>, Vec<Problem>> {
        match &self.trusted_ref {
            _ if untrusted.is_empty() || self.trust_goal => Ok(None),
            Some(reference) => Ok(Some(Doubt { reference: reference.clone(), untrusted })),
            None => Err(untrusted),
        }
    }
}

/// Keys of a goal file that hold if it is the same at a commit.
pub struct Doubt {
    reference: String,
    untrusted: Vec<Problem>,
}

impl Doubt {
    /// Asks git, which is started for that alone: nothing of the file is in force yet, neither its environment nor its
    /// sandbox nor its workspace. `Ok(Err(…))`: nobody vouches for the file.
    ///
    /// # Errors
    /// When git cannot be asked, or the file not read.
    pub fn settle(mut self, goal_file: Option<&Path>) -> Result<Result<(), Vec<Problem>>, Failure> {
        let why = match goal_file.and_then(|file| Some((file, file.parent()?, file.file_name()?.to_str()?))) {
            None => "vouches for no file".to_owned(),
            Some((file, folder, name)) => match repository_top(folder) {
                None => format!("vouches for nothing: `{}` is in no repository", folder.display()),
                Some(top) => match self.ask(file, folder, name, &top)? {
                    None => return Ok(Ok(())),
                    Some(why) => why,
                },
            },
        };
        self.untrusted.push(Problem {
            file: "command line".to_owned(),
            line_column: None,
            key: "--trusted-ref".to_owned(),
            message: why,
            hint: None,
        });
        Ok(Err(self.untrusted))
    }

    /// Why the commit does not vouch for the file; `None` when it does.
    fn ask(&self, file: &Path, folder: &Path, name: &str, top: &Path) -> Result<Option<String>, Failure> {
        let env = RealEnv;
        let stores: Vec<PathBuf> = home_dir(&env).into_iter().collect();
        let temporary = confine::temporary_folder(&stores)?;
        let (policy, secrets) = (EnvPolicy::default(), Secrets::default());
        let child =
            process::child_environment(&env.vars(), &policy, &[], &secrets, top, "trusted-ref", temporary.path());
        let exec = process::start(ProcessOptions {
            git_environment: child.git,
            run_id: "trusted-ref".to_owned(),
            ..ProcessOptions::default()
        })?;
        let ground =
            Ground { stores, keys: KeyPlaces::default(), temporary: temporary.path().to_owned(), pretended_abi: None };
        let wanted = Wanted { files: Files::ReadOnly, ..Wanted::default() };
        confine::confine(&exec, &ground.wanted(&wanted, None, temporary.path())?)?;
        let world = World {
            transport: Rc::new(Http::new()),
            exec: exec.clone(),
            dir: Rc::new(RealDir),
            clock: Rc::new(RealClock::new()),
            ids: Rc::new(RealIds::random()?),
            env: Rc::new(env),
        };
        let git = Git::new(Roots::same(folder.to_owned()), temporary.path().join("git"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let why = self.compare(&world, &git, file, name).await;
            exec.shutdown(Duration::from_secs(2)).await;
            why
        })
    }

    async fn compare(&self, world: &World, git: &Git, file: &Path, name: &str) -> Result<Option<String>, Failure> {
        let reference = &self.reference;
        let commit = match git.commit(world, reference).await? {
            Named::Commit(id) => id,
            Named::Nothing => return Ok(Some(format!("`{reference}` is no commit, branch or tag here"))),
            Named::Shortened => {
                let why = format!(
                    "`{reference}` is no branch or tag, and another commit's id can begin so too: write the whole id"
                );
                return Ok(Some(why));
            }
            Named::Several(names) => {
                let why = format!("`{reference}` is more than one: write which, `{}`", names.join("` or `"));
                return Ok(Some(why));
            }
        };
        Ok(match git.blob(world, &commit, name).await? {
            Some(blob) if std::fs::read(file)? == blob => None,
            Some(_) => Some(format!("does not vouch for `{name}`: it is another one at `{reference}`")),
            None => Some(format!("does not vouch for `{name}`: it is not there at `{reference}`")),
        })
    }
}
