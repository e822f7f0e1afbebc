//! What a run owes when its provider, or the way to it, is in trouble.

mod clock;
mod endpoints;
mod hour;
#[cfg(target_os = "linux")]
mod keys;
mod live;
mod retries;
mod server;
mod tls;
