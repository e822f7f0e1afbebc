//! The `openai-chat` wire: `POST /chat/completions`, of OpenAI and of the many servers that copy it.

mod calls;
mod compose;
mod decode;
mod encode;

use super::stream::Stream;

pub(super) use compose::compose;
pub(super) use encode::{front, head, messages};

pub(super) type Decoder = Stream<decode::Chat>;

pub(super) fn headers(key: Option<&str>) -> Vec<(String, String)> {
    let mut headers =
        vec![("content-type".into(), "application/json".into()), ("accept".into(), "text/event-stream".into())];
    headers.extend(key.map(|key| ("authorization".into(), format!("Bearer {key}"))));
    headers
}
