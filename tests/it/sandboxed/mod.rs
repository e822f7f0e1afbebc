//! What commands of a run can touch, and what not: the sandbox of the kernel this runs on.

mod files;
mod git;
mod keyrings;
mod levels;
mod network;
mod places;
mod signals;
pub mod support;
mod tools;
mod web;
