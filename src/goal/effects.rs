//! `record: effects`: what each step did to the files of the workspace is written down.

use std::cell::RefCell;
use std::rc::Rc;

use crate::session::{Effects, Fact, Session};
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
    /// Writes down what differs from the last look. `by`: the tool call that was over.
    pub fn look(&self, by: Option<&str>) {
        let found = self.tree.borrow_mut().effects(&self.world, &self.secrets);
        let effects = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "what a step did to the files cannot be told");
            Effects { partial: true, ..Effects::default() }
        });
        if effects != Effects::default() {
            self.session.aside(Fact::Effects(Effects { by: by.map(str::to_owned), ..effects }));
        }
    }
}
