//! The gate every start goes through, and that the teardown closes.
//!
//! A pass is held from the check until the new tree is registered. Closing waits for the passes that are out, so
//! after it every tree is known and none can be added.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{RwLock, RwLockReadGuard};

#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    refused: AtomicU64,
    passes: RwLock<()>,
}

/// The right to start one tree.
pub struct Pass<'a>(#[expect(dead_code, reason = "held, never read")] RwLockReadGuard<'a, ()>);

impl Gate {
    /// `None` when the gate is closed.
    pub async fn enter(&self) -> Option<Pass<'_>> {
        let pass = self.passes.read().await;
        if self.is_closed() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Pass(pass))
    }

    /// Nobody enters from now on; resolves when nobody is inside.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _everybody_is_out = self.passes.write().await;
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closing_waits_for_who_is_inside_and_refuses_who_comes_later() {
        let gate = Gate::default();
        let inside = gate.enter().await.unwrap();
        let mut closing = Box::pin(gate.close());
        assert!(futures_poll(&mut closing).is_none(), "closed while a start was under way");
        drop(inside);
        closing.await;
        assert!(gate.enter().await.is_none());
        assert_eq!(gate.refused(), 1);
    }

    /// One poll of a future.
    fn futures_poll<F: std::future::Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
