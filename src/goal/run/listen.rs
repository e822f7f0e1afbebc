//! Signals, while a run is prepared and driven.

use crate::event::{Event, Outcome};
use crate::process::SignalEvent;
use crate::session::{Fact, Session};
use crate::world::{Halt, Why};

/// What a signal needs to know of the run.
pub(super) struct Heard<'a> {
    /// Writes the result as things stand, before anything is ended.
    pub stopping: &'a dyn Fn(Outcome),
    /// One line about how far the run is.
    pub status: &'a dyn Fn() -> String,
}

/// Listens for as long as it is awaited.
pub(super) async fn interrupts(
    signals: &mut Option<crate::process::Signals>,
    session: &Session,
    halt: &Halt,
    heard: &Heard<'_>,
) {
    match signals {
        Some(signals) => listen(signals, session, halt, heard).await,
        None => std::future::pending().await,
    }
}

/// Takes signals as they come. A hangup, interrupt or termination is in the log before the run is halted.
async fn listen(signals: &mut crate::process::Signals, session: &Session, halt: &Halt, heard: &Heard<'_>) {
    loop {
        match signals.next().await {
            SignalEvent::Stop(signal) => {
                let outcome = Outcome::of_signal(signal);
                let reason = outcome.name().to_owned();
                if let Err(error) = session.append(Fact::Interrupted { reason }) {
                    tracing::error!(%error, "the interruption cannot be logged");
                }
                if let Err(error) = session.sync_now().await {
                    tracing::error!(%error, "the log cannot be synced");
                }
                (heard.stopping)(outcome);
                halt.set(Why::Signal(outcome));
            }
            // `process::force` tells the teardown; there is nothing to write down.
            SignalEvent::Force(_) => {}
            SignalEvent::Drain => {
                let fact =
                    Fact::Notice { code: "drain".to_owned(), text: "draining: saving after this call".to_owned() };
                if let Err(error) = session.append(fact) {
                    tracing::error!(%error, "the drain cannot be logged");
                }
                halt.set(Why::Drain);
            }
            SignalEvent::Status => {
                session.emit(Event::Notice { code: "status".to_owned(), text: (heard.status)() });
                if let Err(error) = session.save_derived() {
                    tracing::error!(%error, "status.json cannot be written");
                }
            }
        }
    }
}
