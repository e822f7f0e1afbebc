//! Shows: the lines or bars on stderr, the events or the result on stdout, the summaries.
//!
//! Invariant: this room knows events and nothing else, and all that it says it makes from them; a stream that
//! cannot be written to is given up silently, and the run goes on. Text of the agent, of the model, of tools and of
//! files never reaches a stream before `clean`. Called by `cli`.

mod bars;
mod clean;
mod console;
mod jsonl;
mod lines;
mod look;
mod markdown;
mod summary;
mod text;

#[cfg(test)]
mod tests;

pub use clean::{clean, clean_line};
pub use console::Console;
pub use lines::{compacted_words, signal_words};
pub use look::{ColourChoice, Format, Look};
pub use markdown::summary_markdown;
pub use summary::summary_text;
pub use text::{count, duration_ms, shell_line};
