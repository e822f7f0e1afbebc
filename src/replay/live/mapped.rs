//! An `Exec` for a workspace that stands elsewhere than is shown: commands name it as shown, and so does what they
//! print; they run where it really is.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::event::Leaked;
use crate::world::{Boxed, Captured, Command, Exec, ExecError, Finished, JobInfo, Roots};

pub struct Mapped {
    inner: Rc<dyn Exec>,
    roots: Roots,
}

impl Mapped {
    pub fn new(inner: Rc<dyn Exec>, roots: Roots) -> Mapped {
        Mapped { inner, roots }
    }

    fn to_real(&self, text: &str) -> String {
        String::from_utf8_lossy(&renamed(text.as_bytes(), &self.roots.shown, &self.roots.real)).into_owned()
    }

    fn to_shown(&self, bytes: &[u8]) -> Vec<u8> {
        renamed(bytes, &self.roots.real, &self.roots.shown)
    }

    fn command(&self, command: Command) -> Command {
        Command {
            argv: command.argv.iter().map(|word| self.to_real(word)).collect(),
            cwd: self.roots.to_real(&command.cwd),
            env: command.env.into_iter().map(|(name, value)| (name, self.to_real(&value))).collect(),
            ..command
        }
    }
}

/// The text with a path in place of another one, wherever that stands as a whole path or as its beginning.
fn renamed(text: &[u8], from: &Path, to: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let (from, to) = (from.as_os_str().as_bytes(), to.as_os_str().as_bytes());
    // Of a root of one character nothing can be told.
    if from == to || from.len() < 2 || text.len() < from.len() {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) && ends_names(text, at, at + from.len()) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// Whether no name goes on before one place and behind another.
fn ends_names(text: &[u8], before: usize, behind: usize) -> bool {
    let in_name = |at: Option<usize>| {
        at.and_then(|at| text.get(at)).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte))
    };
    if in_name(before.checked_sub(1)) || in_name(Some(behind)) {
        return false;
    }
    // A full stop, or the ending of another file's name.
    text.get(behind) != Some(&b'.') || !in_name(Some(behind + 1))
}

impl Exec for Mapped {
    fn run(&self, command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        let command = self.command(command);
        Box::pin(async move {
            let finished = self.inner.run(command).await?;
            let Captured { head, omitted_bytes, tail } = finished.output;
            let output = Captured { head: self.to_shown(&head), omitted_bytes, tail: self.to_shown(&tail) };
            Ok(Finished { output, ..finished })
        })
    }

    fn start(&self, job: &str, command: Command) -> Boxed<'_, Result<(), ExecError>> {
        self.inner.start(job, self.command(command))
    }

    fn jobs(&self) -> Vec<JobInfo> {
        let shown = |text: &str| String::from_utf8_lossy(&self.to_shown(text.as_bytes())).into_owned();
        let mut jobs = self.inner.jobs();
        for job in &mut jobs {
            job.command = shown(&job.command);
            job.last_line = shown(&job.last_line);
        }
        jobs
    }

    /// As printed: offsets count what was.
    fn read(&self, job: &str, offset: u64, limit: usize) -> Option<(u64, Vec<u8>)> {
        self.inner.read(job, offset, limit)
    }

    fn kill<'a>(&'a self, job: &'a str) -> Boxed<'a, ()> {
        self.inner.kill(job)
    }

    fn changed(&self) -> Boxed<'_, ()> {
        self.inner.changed()
    }

    fn busy(&self) -> bool {
        self.inner.busy()
    }

    fn shutdown(&self, grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        self.inner.shutdown(grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_renamed_where_it_is_one() {
        let to = |text: &str| {
            let renamed = renamed(text.as_bytes(), Path::new("/work/app"), Path::new("/tmp/x"));
            String::from_utf8(renamed).unwrap()
        };
        assert_eq!(to("cd /work/app && cat /work/app/a.txt"), "cd /tmp/x && cat /tmp/x/a.txt");
        assert_eq!(to("see /work/app. 'file:///work/app'"), "see /tmp/x. 'file:///tmp/x'");
        for other in ["/work/apple", "/work/app.bak/x", "/work/app-2", "/home/work/ap", "work/app", "x/work/app"] {
            assert_eq!(to(other), other);
        }
        assert_eq!(renamed(b"/a/b", Path::new("/"), Path::new("/x")), b"/a/b");
    }
}
