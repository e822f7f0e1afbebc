//! What a name for a commit stands for, told without git's own preferences.
//!
//! git takes a tag before a branch of the same name, and whatever a shortened id can mean. Who may push a tag, or make
//! a commit whose id begins alike, would then choose what somebody else's name means.

use super::WorkspaceError;
use super::git::{Git, WITHOUT_REPLACEMENTS};
use crate::world::World;

/// A shorter id is not even taken by git.
const SHORTEST_ID: usize = 4;

/// What a name stands for in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The id of the commit.
    Commit(String),
    /// More than one branch or tag has the name; their full names.
    Several(Vec<String>),
    /// It is no branch or tag, but may be the start of an id.
    Shortened,
    Nothing,
}

impl Git {
    /// The commit that a whole id, a branch, a tag or `HEAD` names, also with `~N` and `^N` behind it.
    ///
    /// # Errors
    /// When git cannot answer.
    pub async fn commit(&self, world: &World, name: &str) -> Result<Named, WorkspaceError> {
        let (base, steps) = name.split_at(name.find(['~', '^']).unwrap_or(name.len()));
        let plain = steps.bytes().all(|byte| matches!(byte, b'~' | b'^' | b'0'..=b'9'));
        if base.is_empty() || base.starts_with('-') || base.contains(':') || !plain {
            return Ok(Named::Nothing);
        }
        let hex = base.bytes().all(|byte| byte.is_ascii_hexdigit());
        let whole = if base == "HEAD" || hex && matches!(base.len(), 40 | 64) {
            base.to_owned()
        } else {
            let mut found = self.references(world, base).await?;
            match found.len() {
                0 if hex && base.len() >= SHORTEST_ID => return Ok(Named::Shortened),
                0 => return Ok(Named::Nothing),
                1 => found.remove(0),
                _ => return Ok(Named::Several(found)),
            }
        };
        let object = format!("{whole}{steps}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", &object];
        let id = self.answer_or(world, &args, &WITHOUT_REPLACEMENTS.map(owned), &[0], &[1, 128]).await?;
        Ok(id.map_or(Named::Nothing, |id| Named::Commit(String::from_utf8_lossy(&id).trim().to_owned())))
    }

    /// The full names of the references that a name may mean.
    async fn references(&self, world: &World, name: &str) -> Result<Vec<String>, WorkspaceError> {
        let candidates: Vec<String> = if name.starts_with("refs/") {
            vec![name.to_owned()]
        } else {
            let folders = ["refs/", "refs/heads/", "refs/tags/", "refs/remotes/"];
            let head = format!("refs/remotes/{name}/HEAD");
            folders.iter().map(|folder| format!("{folder}{name}")).chain([head]).collect()
        };
        let mut args = vec!["for-each-ref", "--format=%(refname)"];
        args.extend(candidates.iter().map(String::as_str));
        let listed = self.run(world, &args, &[]).await?;
        // A name also lists what is below it, and one with a `*` more.
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let exact = listed.lines().filter(|line| candidates.iter().any(|candidate| candidate == line));
        Ok(exact.map(str::to_owned).collect())
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sh, wait, world};
    use super::*;
    use crate::world::Roots;

    #[test]
    fn a_name_stands_for_one_commit_or_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        sh(&work, "git init -q -b main . && git commit -q --allow-empty -m one && git commit -q --allow-empty -m two");
        let id = |name: &str| sh(&work, &format!("git rev-parse {name}")).trim().to_owned();
        let (first, second) = (id("HEAD~1"), id("HEAD"));
        sh(&work, "git branch old HEAD~1 && git tag -a -m t v1 HEAD~1 && git branch feature/x HEAD~1");
        sh(&work, "git update-ref refs/remotes/origin/side HEAD~1; git update-ref refs/remotes/origin/main HEAD");
        sh(&work, "git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main");
        let git = Git::new(Roots::same(work.clone()), dir.path().join("scratch"));
        let named = |name: &str| wait(git.commit(&world(), name)).unwrap();
        for name in ["main", "HEAD", "heads/main", "refs/heads/main", "origin", "origin/main", second.as_str()] {
            assert_eq!(named(name), Named::Commit(second.clone()), "{name}");
        }
        for name in ["old", "v1", "tags/v1", "feature/x", "origin/side", "main~1", "HEAD^", "main^1", first.as_str()] {
            assert_eq!(named(name), Named::Commit(first.clone()), "{name}");
        }
        for name in ["nope", "feature", "ma*", "", "-x", "HEAD:x", "main^{tree}", "main@{0}", "@", "main~9", ":/one"] {
            assert_eq!(named(name), Named::Nothing, "{name}");
        }
        assert_eq!(named(&"0".repeat(40)), Named::Nothing);
        assert_eq!(named(&second[..8]), Named::Shortened, "another commit can begin alike");

        // A tag of the branch's name is not taken for the branch, and the full names are open to both.
        sh(&work, "git tag main HEAD~1");
        let both = ["refs/heads/main", "refs/tags/main"].map(str::to_owned);
        assert_eq!(named("main"), Named::Several(both.to_vec()));
        assert_eq!(named("main~1"), Named::Several(both.to_vec()));
        assert_eq!(named("refs/heads/main"), Named::Commit(second.clone()));
        assert_eq!(named("refs/tags/main"), Named::Commit(first.clone()));
        sh(&work, "git tag refs/heads/main HEAD~1");
        assert_eq!(named("refs/heads/main"), Named::Commit(second.clone()), "whatever a tag is called");
        // A name of hexadecimal digits is a branch when there is one.
        sh(&work, "git branch deadbeef HEAD~1");
        assert_eq!(named("deadbeef"), Named::Commit(first.clone()));
    }
}
