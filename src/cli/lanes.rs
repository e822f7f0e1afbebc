//! Ports that are made for a run from others: transports by lane, and an `Exec` before there is one.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::event::{Lane, Leaked};
use crate::world::{
    Boxed, Command, Exec, ExecError, Finished, HttpRequest, HttpResponse, JobInfo, KeyAt, PageRequest, Transport,
    TransportError,
};

/// Recorded lanes, and everything else over the network: the agent's replies may be recorded, the judge's live.
pub struct Lanes {
    pub recorded: BTreeMap<Lane, Rc<dyn Transport>>,
    pub live: Rc<dyn Transport>,
}

impl Transport for Lanes {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        self.recorded.get(&request.tag.lane).unwrap_or(&self.live).send(request)
    }

    fn fetch(&self, request: PageRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        self.live.fetch(request)
    }

    fn key<'a>(&'a self, at: &'a KeyAt, again: bool) -> Boxed<'a, Result<Option<String>, String>> {
        self.live.key(at, again)
    }

    fn recorded(&self) -> bool {
        !self.recorded.is_empty()
    }

    fn differing(&self) -> u64 {
        // One cassette may serve several lanes; it is asked once.
        let mut asked: Vec<&Rc<dyn Transport>> = Vec::new();
        for transport in self.recorded.values() {
            if !asked.iter().any(|other| Rc::ptr_eq(other, transport)) {
                asked.push(transport);
            }
        }
        asked.into_iter().map(|transport| transport.differing()).sum()
    }
}

/// Starts nothing: what a run has until its configuration is known.
pub struct NoExec;

impl Exec for NoExec {
    fn run(&self, _command: Command) -> Boxed<'_, Result<Finished, ExecError>> {
        Box::pin(async { Err(ExecError::ShuttingDown) })
    }

    fn start(&self, _job: &str, _command: Command) -> Boxed<'_, Result<(), ExecError>> {
        Box::pin(async { Err(ExecError::ShuttingDown) })
    }

    fn jobs(&self) -> Vec<JobInfo> {
        Vec::new()
    }

    fn read(&self, _job: &str, _offset: u64, _limit: usize) -> Option<(u64, Vec<u8>)> {
        None
    }

    fn kill<'a>(&'a self, _job: &'a str) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn changed(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn busy(&self) -> bool {
        false
    }

    fn shutdown(&self, _grace: Duration) -> Boxed<'_, Vec<Leaked>> {
        Box::pin(async { Vec::new() })
    }
}
