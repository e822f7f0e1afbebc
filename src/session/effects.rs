//! What happened to the files of a workspace (`record: effects`): a replay has no commands to run, and applies it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wirelog::Blob;

/// What differs from how the workspace was last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Effects {
    /// The tool call that was over; absent behind a check, and where nobody knows who it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// By the bytes of their paths.
    pub files: Vec<FileEffect>,
    /// More happened than stands here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// One path that is another than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEffect {
    /// Relative to the workspace.
    pub path: Blob,
    /// How it is now; absent when it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileState>,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileState {
    pub kind: FileKind,
    /// Hex. Of the content; of a file over 20 MB, of its size and modification time.
    pub sha256: String,
    /// Absent where it is too much, cannot be read, or holds a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Blob>,
}

/// What a path of a workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Executable,
    /// The content is the target's text.
    Symlink,
    /// A nested repository; the digest stands for its commit.
    Repository,
    /// A pipe, socket or device.
    Special,
}
