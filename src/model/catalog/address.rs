//! Base URLs: what is accepted, and whether the server is a local one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

use super::EndpointError;

/// A checked base URL.
#[derive(Debug)]
pub(super) struct Address {
    /// As given, without closing slashes and surrounding spaces.
    pub text: String,
    /// Loopback or a private address.
    pub local: bool,
}

impl Address {
    /// Accepts `http` and `https` with a host, and nothing that a request's path cannot be put behind. Credentials
    /// are refused because a URL is shown and stored; the refusal does not repeat them.
    pub fn parse(text: &str) -> Result<Address, EndpointError> {
        let text = text.trim().trim_end_matches('/');
        let bad = || EndpointError::BadUrl(without_credentials(text));
        let url = Url::parse(text).map_err(|_| bad())?;
        let plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        match url.host_str() {
            Some(host) if plain && !host.is_empty() => Ok(Address { text: text.to_owned(), local: is_local(host) }),
            _ => Err(bad()),
        }
    }
}

fn without_credentials(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}…{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

/// Whether a URL leads to this machine alone, whatever is asked for an address.
pub fn is_loopback(url: &str) -> bool {
    let Ok(url) = Url::parse(url.trim()) else { return false };
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => is_local_v4(ip),
        Ok(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(mapped) => is_local_v4(mapped),
            None => is_local_v6(ip),
        },
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost"),
    }
}

const fn is_local_v4(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
}

const fn is_local_v6(ip: Ipv6Addr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_servers_are_told_by_their_address() {
        for local in [
            "http://localhost:8080/v1",
            "http://LOCALHOST/v1",
            "http://api.localhost",
            "http://127.0.0.1:8080/v1",
            "http://127.9.9.9",
            "http://[::1]:8080/v1",
            "http://10.0.0.7/v1",
            "http://172.16.0.1",
            "http://172.31.255.255",
            "https://192.168.1.5:8000/v1",
            "http://169.254.1.1",
            "http://[fd00::1]/v1",
            "http://[::ffff:127.0.0.1]/v1",
            "http://0.0.0.0:8000/v1",
        ] {
            assert!(Address::parse(local).unwrap().local, "{local}");
        }
        for elsewhere in [
            "https://api.example.com",
            "https://172.32.0.1",
            "https://8.8.8.8/v1",
            "https://localhost.example.com/v1",
            "https://10.example.com/v1",
            "https://[2001:db8::1]/v1",
        ] {
            assert!(!Address::parse(elsewhere).unwrap().local, "{elsewhere}");
        }
    }

    #[test]
    fn a_closing_slash_is_forgiven() {
        assert_eq!(Address::parse(" https://api.example.com/v1/ ").unwrap().text, "https://api.example.com/v1");
    }

    #[test]
    fn what_is_no_plain_url_is_refused() {
        for bad in [
            "",
            "api.example.com",
            "localhost:8080",
            "ftp://example.com",
            "file:///etc",
            "http://",
            "https://h/v1?k=1",
            "https://h/#x",
        ] {
            assert_eq!(
                Address::parse(bad).unwrap_err(),
                EndpointError::BadUrl(bad.trim_end_matches('/').into()),
                "{bad}"
            );
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        let error = Address::parse("https://user:hunter2@example.com/v1").unwrap_err();
        assert_eq!(error, EndpointError::BadUrl("https://…@example.com/v1".into()));
    }
}
