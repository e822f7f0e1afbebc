//! Who vouches for a goal file that lies in the repository it is about.

use std::path::Path;

use clap::Args;

use super::failure::Failure;
use crate::goal::Problem;
use crate::workspace::Git;
use crate::world::{Roots, World};

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
    /// Asks git. `Ok(Err(…))`: the file is another one there.
    ///
    /// # Errors
    /// When git cannot be asked, or the file not read.
    pub async fn settle(
        mut self,
        world: &World,
        goal_file: Option<&Path>,
        scratch: &Path,
    ) -> Result<Result<(), Vec<Problem>>, Failure> {
        let reference = &self.reference;
        let why = match goal_file.and_then(|file| Some((file, file.parent()?, file.file_name()?.to_str()?))) {
            _ if reference.starts_with('-') || reference.contains(':') => "is no commit, branch or tag".to_owned(),
            None => "vouches for no file".to_owned(),
            Some((file, folder, name)) => {
                let git = Git::new(Roots::same(folder.to_owned()), scratch.join("trusted-ref"));
                match git.blob(world, reference, name).await? {
                    Some(blob) if std::fs::read(file)? == blob => return Ok(Ok(())),
                    Some(_) => format!("does not vouch for `{name}`: it is another one at `{reference}`"),
                    None => format!("does not vouch for `{name}`: it is not there at `{reference}`"),
                }
            }
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
}
