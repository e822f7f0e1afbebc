//! The `anthropic` wire: `POST /v1/messages` with server-sent events.

mod compose;
mod decode;
mod encode;

use super::stream::Stream;

pub(super) use compose::compose;
pub(super) use encode::{front, head, messages};

pub(super) type Decoder = Stream<decode::Messages>;

pub(super) fn headers(key: Option<&str>) -> Vec<(String, String)> {
    let mut headers = vec![
        ("content-type".into(), "application/json".into()),
        ("accept".into(), "text/event-stream".into()),
        ("anthropic-version".into(), "2023-06-01".into()),
    ];
    headers.extend(key.map(|key| ("x-api-key".into(), key.to_owned())));
    headers
}
