//! TODO(H1)
use super::super::error::ModelError;
use super::super::reply::{Delta, Partial, Reply};
use super::super::request::{Front, ToolSchema};
use crate::session::Message;

#[derive(Default)]
pub struct Decoder;

impl Decoder {
    pub fn push(&mut self, _chunk: &[u8], _deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        todo!()
    }
    pub fn finish(&mut self) -> Result<Reply, ModelError> {
        todo!()
    }
    pub fn partial(&self) -> Partial {
        todo!()
    }
}
pub fn headers(_key: Option<&str>) -> Vec<(String, String)> {
    todo!()
}
pub fn front(_front: &Front<'_>) -> Vec<u8> {
    todo!()
}
pub fn head(_system: &str, _tools: &[ToolSchema]) -> String {
    todo!()
}
pub fn messages(_messages: &[Message], _follows: bool, _out: &mut Vec<u8>) -> u64 {
    todo!()
}
