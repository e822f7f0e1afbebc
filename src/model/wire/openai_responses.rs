//! The `openai-responses` wire: `POST /responses` of OpenAI, and of servers that copy it.
//!
//! Nothing is stored at the provider: the items of a reply come back with the next request as they were, reasoning
//! (encrypted) among them.

mod compose;
mod decode;
mod encode;

use super::stream::Stream;

pub(super) use super::openai_chat::headers;
pub(super) use compose::compose;
pub(super) use encode::{front, head, messages};

pub(super) type Decoder = Stream<decode::Response>;
