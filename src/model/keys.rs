//! Keys that stand in a file or come from a command: read once at the start, and again when one is refused.
//!
//! Invariant: a key that was read is a secret of the run before anybody can use it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::world::{Boxed, KeyAt, Secrets};

/// The name under which such a key is replaced in outputs.
const SECRET_NAME: &str = "API_KEY";

/// No key is longer.
const MOST_BYTES: u64 = 64 << 10;

/// Runs a command beside the loop and gives what it printed, or why there is nothing.
pub type RunKeyCommand = Rc<dyn Fn(Vec<String>) -> Boxed<'static, Result<Vec<u8>, String>>>;

/// The keys of a run that no variable holds.
#[derive(Clone)]
pub struct Keys {
    known: Rc<RefCell<BTreeMap<KeyAt, String>>>,
    secrets: Rc<RefCell<Secrets>>,
    run: RunKeyCommand,
}

impl Keys {
    pub fn new(run: RunKeyCommand) -> Keys {
        Keys { known: Rc::default(), secrets: Rc::default(), run }
    }

    /// Makes every key that is read from now on one of these secrets. To be called before the first is.
    pub fn hide_in(&self, secrets: &Secrets) {
        *self.secrets.borrow_mut() = secrets.clone();
    }

    /// The key as it is known, or as it stands there now.
    ///
    /// # Errors
    /// What is wrong with it, without the key.
    pub async fn get(&self, at: &KeyAt, again: bool) -> Result<String, String> {
        if let (false, Some(key)) = (again, self.known.borrow().get(at)) {
            return Ok(key.clone());
        }
        let bytes = match at {
            KeyAt::File(path) => read(path),
            KeyAt::Command(argv) => (self.run)(argv.clone()).await,
        };
        let bytes = bytes.map_err(|why| format!("{at} {why}"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{at} gives no text"))?;
        let key = text.trim();
        if key.is_empty() {
            return Err(format!("{at} gives nothing"));
        }
        if key.chars().any(char::is_control) {
            return Err(format!("{at} gives more than one line"));
        }
        self.secrets.borrow().add(SECRET_NAME, key);
        self.known.borrow_mut().insert(at.clone(), key.to_owned());
        Ok(key.to_owned())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(said)?.len();
    if length > MOST_BYTES {
        return Err(format!("has {length} bytes, which is no key"));
    }
    std::fs::read(path).map_err(said)
}
