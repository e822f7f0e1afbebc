//! What a hostile reader of the pages tries: overspending, waiting for ever, leaking, losing, disobeying.

mod ci;
mod flags;
mod losses;
mod money;
mod secrets;
mod stops;
