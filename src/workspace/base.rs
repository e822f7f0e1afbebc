//! The base of a workspace: how it stood when its session began.

use std::path::PathBuf;

/// What a path of a workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseKind {
    File,
    Executable,
    /// The digest is that of the target's text.
    Symlink,
    /// A nested repository; the digest stands for its commit.
    Repository,
}

/// One path of a workspace as it stood when the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub kind: BaseKind,
    pub bytes: u64,
    /// Of the content, whatever the kind.
    pub sha256: String,
}

/// The listing of a workspace as it stood when the session began, sorted by the bytes of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// HEAD then, where the workspace is a git repository.
    pub git_commit: Option<String>,
    pub files: Vec<BaseFile>,
}
