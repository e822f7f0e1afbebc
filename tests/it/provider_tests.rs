//! The scripted provider's own tests: a client of a few lines looks at the bytes, and every rule about requests
//! has a request that breaks it.

mod client;
mod items;
mod rules;
mod scripts;
mod streams;
mod transport;
