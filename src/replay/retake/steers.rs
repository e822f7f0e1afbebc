//! What was said to the agent while it worked, said again after as many of its calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::event::{Lane, Record};
use crate::session::{Fact, Line, Listener, Session};

/// Where steering goes to.
type Goes = (Session, Rc<RefCell<VecDeque<String>>>);

pub struct Steers {
    /// Each with the number of agent calls that were over when it came.
    due: RefCell<VecDeque<(u64, String)>>,
    over: Cell<u64>,
    goes: RefCell<Option<Goes>>,
}

impl Steers {
    pub fn of(facts: &[Line]) -> Steers {
        let (mut over, mut due) = (0, VecDeque::new());
        for line in facts {
            match &line.fact {
                Fact::Settled(settled) if settled.lane == Lane::Agent => over += 1,
                Fact::Steer { text } => due.push_back((over, text.clone())),
                _ => {}
            }
        }
        Steers { due: RefCell::new(due), over: Cell::new(0), goes: RefCell::default() }
    }

    pub fn begin(&self, session: Session, steering: Rc<RefCell<VecDeque<String>>>) {
        self.goes.replace(Some((session, steering)));
    }

    /// Breaks the circle of session and listener.
    pub fn end(&self) {
        self.goes.replace(None);
    }

    /// How many were not said: the run was shorter.
    pub fn left(&self) -> u64 {
        self.due.borrow().len() as u64
    }

    fn next(&self) -> Option<String> {
        let mut due = self.due.borrow_mut();
        let ripe = due.front().is_some_and(|(after, _)| *after <= self.over.get());
        ripe.then(|| due.pop_front().map(|(_, text)| text))?
    }
}

impl Listener for Steers {
    fn event(&self, _record: &Record) {}

    fn fact(&self, line: &Line) {
        match &line.fact {
            Fact::Settled(settled) if settled.lane == Lane::Agent => self.over.set(self.over.get() + 1),
            Fact::Iteration { .. } | Fact::Message(_) => {}
            _ => return,
        }
        let Some((session, steering)) = self.goes.borrow().clone() else { return };
        while let Some(text) = self.next() {
            // Accepted is what is in the log.
            match session.append(Fact::Steer { text: text.clone() }) {
                Ok(_) => steering.borrow_mut().push_back(text),
                Err(error) => tracing::error!(%error, "steering cannot be logged"),
            }
        }
    }
}
