//! Large, odd and unkept outputs of real commands: what the model reads, what is on the disk, and what is told of what
//! is not.

mod failures;
mod limits;
mod outputs;
mod support;
