//! Which transport serves which lane: the agent's replies may be recorded while the judge's are live.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::event::Lane;
use crate::world::{Boxed, HttpRequest, HttpResponse, Transport, TransportError};

/// Recorded lanes, and everything else over the network.
pub struct Lanes {
    pub recorded: BTreeMap<Lane, Rc<dyn Transport>>,
    pub live: Rc<dyn Transport>,
}

impl Transport for Lanes {
    fn send(&self, request: HttpRequest) -> Boxed<'_, Result<HttpResponse, TransportError>> {
        self.recorded.get(&request.tag.lane).unwrap_or(&self.live).send(request)
    }

    fn recorded(&self) -> bool {
        !self.recorded.is_empty()
    }
}
