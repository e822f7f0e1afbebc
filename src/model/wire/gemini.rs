//! The `gemini` wire: `POST /models/MODEL:streamGenerateContent` of Google's Gemini API.
//!
//! Thought signatures go back with the part that they came with, byte for byte, also when the history was edited.

mod compose;
mod decode;
mod encode;
mod schema;

use super::stream::Stream;

pub(super) use compose::compose;
pub(super) use encode::{front, head, messages};

pub(super) type Decoder = Stream<decode::Content>;

pub(super) fn headers(key: Option<&str>) -> Vec<(String, String)> {
    let mut headers =
        vec![("content-type".into(), "application/json".into()), ("accept".into(), "text/event-stream".into())];
    headers.extend(key.map(|key| ("x-goog-api-key".into(), key.to_owned())));
    headers
}

/// The URL of a call; the model stands in it, not in the body.
pub(super) fn url(base: &str, model: &str) -> String {
    // Tuned models are named with their collection.
    let collection = if model.starts_with("models/") || model.starts_with("tunedModels/") { "" } else { "models/" };
    let model = model.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    });
    format!("{base}/{collection}{model}:streamGenerateContent?alt=sse")
}
