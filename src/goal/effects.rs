//! `record: effects`: what each step did to the files of the workspace is written down.

use std::cell::RefCell;
use std::rc::Rc;

use crate::event::ToolStatus;
use crate::session::{Effects, Fact, Session};
use crate::tools::Ran;
use crate::workspace::Tree;
use crate::world::{Secrets, World};

/// Looks at the workspace after each step.
#[derive(Clone)]
pub struct Witness {
    pub world: World,
    pub session: Session,
    pub tree: Rc<RefCell<Tree>>,
    /// A content that holds one is left out.
    pub secrets: Secrets,
}

impl Witness {
    /// Writes down what differs from the last look.
    pub fn look(&self) {
        self.write(None, None);
    }

    /// The same after a tool call.
    pub fn call(&self, call_id: &str, ran: &Ran) {
        // spettro's own tools tell what they wrote; what lives beside them does not.
        let told = ran.status == ToolStatus::Ok && !ran.changed.is_empty() && !self.world.exec.busy();
        self.write(Some(call_id), told.then_some(ran.changed.as_slice()));
    }

    fn write(&self, by: Option<&str>, written: Option<&[String]>) {
        let found = self.tree.borrow_mut().effects(&self.world, &self.secrets, written);
        let effects = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "what a step did to the files cannot be told");
            Effects { partial: true, ..Effects::default() }
        });
        if effects != Effects::default() {
            self.session.aside(Fact::Effects(Effects { by: by.map(str::to_owned), ..effects }));
        }
    }
}
