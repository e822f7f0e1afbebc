//! Pages of the web, for the agent: a client that has no key, no cookie and no proxy, and that connects to no address
//! of this machine or of a private network unless that is allowed.

use std::cell::RefCell;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::http::{answer, chain, classify};
use crate::world::{HttpResponse, PageRequest, TransportError};

const AGENT: &str = concat!("spettro/", env!("CARGO_PKG_VERSION"));
const ACCEPT: &str = "text/html, application/xhtml+xml, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5";

/// The clients, each built when it is first needed: one with private addresses, one without.
#[derive(Default)]
pub(super) struct Pages {
    open: RefCell<Option<reqwest::Client>>,
    private: RefCell<Option<reqwest::Client>>,
}

impl Pages {
    pub async fn fetch(&self, request: PageRequest) -> Result<HttpResponse, TransportError> {
        let url = Url::parse(&request.url).map_err(|error| TransportError::Unsendable(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(TransportError::Unsendable("it is no http or https address without a user".to_owned()));
        }
        // A name is looked at when it is resolved. An address is not resolved.
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<IpAddr>() {
            check(address, request.private).map_err(|refused| TransportError::Refused(refused.to_string()))?;
        }
        let client = self.client(request.private, request.connect_timeout)?;
        let sent = client.get(url).header("accept", ACCEPT).send().await;
        sent.map(answer).map_err(|error| match refused(&error) {
            Some(refused) => TransportError::Refused(refused.to_string()),
            None => classify(&error),
        })
    }

    fn client(&self, private: bool, connect_timeout: Duration) -> Result<reqwest::Client, TransportError> {
        let slot = if private { &self.private } else { &self.open };
        if let Some(client) = &*slot.borrow() {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .user_agent(AGENT)
            // What is behind a proxy cannot be checked here, and its password would go to whoever it leads to.
            .no_proxy()
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(connect_timeout)
            // Each page is asked for over a connection of its own, made to an address that was looked at.
            .pool_max_idle_per_host(0)
            .dns_resolver(std::sync::Arc::new(Checked { private }))
            .build()
            .map_err(|error| TransportError::Connect(chain(&error)))?;
        *slot.borrow_mut() = Some(client.clone());
        Ok(client)
    }
}

/// The system's resolver, and of what it finds the addresses that may be connected to.
struct Checked {
    private: bool,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let (mut open, mut first) = (Vec::new(), None);
            for address in found {
                match check(address.ip(), private) {
                    Ok(()) => open.push(address),
                    Err(refused) => first = first.or(Some(refused)),
                }
            }
            match first {
                Some(refused) if open.is_empty() => Err(refused.into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

/// An address that pages are not fetched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}")]
struct Refused {
    address: IpAddr,
    what: &'static str,
}

fn refused(error: &dyn Error) -> Option<Refused> {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.filter_map(|cause| cause.downcast_ref::<Refused>()).next().copied()
}

fn check(address: IpAddr, private: bool) -> Result<(), Refused> {
    let (what, can_be_allowed) = match address {
        IpAddr::V4(ip) => of_v4(ip),
        IpAddr::V6(ip) => of_v6(ip),
    };
    match what {
        Some(what) if !(can_be_allowed && private) => Err(Refused { address, what }),
        _ => Ok(()),
    }
}

/// What kind of address it is, unless it is one of the open network; and whether it may be allowed. Link-local ones
/// never are: no page is there, and where a cloud hands out keys is.
const fn of_v4(ip: Ipv4Addr) -> (Option<&'static str>, bool) {
    match ip.octets() {
        [0, ..] => (Some("no address of a server"), false),
        [169, 254, ..] => (Some("a link-local address"), false),
        [224..=255, ..] => (Some("no address of a server"), false),
        [127, ..] => (Some("a loopback address"), true),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => (Some("a private address"), true),
        [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..] => (Some("an address of a shared network"), true),
        _ => (None, true),
    }
}

const fn of_v6(ip: Ipv6Addr) -> (Option<&'static str>, bool) {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => (Some("a loopback address"), true),
        [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => (Some("no address of a server"), false),
        [0xfe80..=0xfeff, ..] => (Some("a link-local address"), false),
        [0xfc00..=0xfdff, ..] => (Some("a private address"), true),
        // An IPv4 address in other clothes: mapped, compatible, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of_v4(held(high, low)),
        [0x2002, high, low, ..] => of_v4(held(high, low)),
        // Translated by a local network's own rule: which address is meant is not known.
        [0x64, 0xff9b, 1, ..] => (Some("an address of a shared network"), true),
        _ => (None, true),
    }
}

/// The IPv4 address in two segments.
const fn held(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(address: &str, private: bool) -> Option<&'static str> {
        check(address.parse().expect(address), private).err().map(|refused| refused.what)
    }

    #[test]
    fn addresses_of_the_open_network_are_open() {
        for address in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101"]
        {
            assert_eq!(says(address, false), None, "{address}");
        }
    }

    #[test]
    fn addresses_of_this_machine_and_of_private_networks_are_refused_unless_allowed() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.7",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.5",
            "100.64.0.1",
            "100.100.100.200",
            "198.18.0.1",
            "192.0.0.8",
            "::1",
            "fd00::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:c0a8:101::",
        ] {
            assert!(says(address, false).is_some(), "{address}");
            assert_eq!(says(address, true), None, "{address}");
        }
    }

    #[test]
    fn link_local_and_odd_addresses_are_never_allowed() {
        for address in [
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::",
        ] {
            assert!(says(address, true).is_some(), "{address}");
        }
    }
}
