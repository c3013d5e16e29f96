//! Whom steps may call: every public address, and what `[http] allow` names. Steps carry data of many
//! clients out of this process, so what only it can reach must be named on purpose.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use url::Host;

use super::address::not_public;

/// What `[http] allow` names beside the public internet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    networks: Vec<Network>,
    names: BTreeSet<String>,
}

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    base: IpAddr,
    prefix: u8,
}

/// A call that was not made because of where it would have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The name that stands for the address; `None`: the URL holds the address itself.
    pub(super) name: Option<String>,
    pub(super) address: IpAddr,
    pub(super) kind: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, address, kind } = self;
        match name {
            None => write!(f, "{address} is {kind} that [http] allow does not name"),
            Some(name) => write!(f, "{name} is at {address}, {kind}, and [http] allow names neither"),
        }
    }
}

impl std::error::Error for Refused {}

impl Allow {
    /// Adds an entry of the configuration: a network, an address or a host's name. The error says what
    /// would be right.
    pub fn add(&mut self, entry: &str) -> Result<(), String> {
        let entry = entry.trim();
        if let Some((base, prefix)) = entry.split_once('/') {
            self.networks.push(Network::new(base, prefix)?);
            return Ok(());
        }
        let address = entry.parse::<IpAddr>().ok();
        let host = address.map(host_of).or_else(|| Host::parse(entry).ok());
        match host.filter(|_| !entry.contains('*')) {
            Some(Host::Ipv4(address)) => self.networks.push(Network { base: address.into(), prefix: 32 }),
            Some(Host::Ipv6(address)) => self.networks.push(Network { base: address.into(), prefix: 128 }),
            Some(Host::Domain(name)) if !plain(&name).is_empty() => {
                if plain(&name) == "localhost" {
                    self.networks.push(Network { base: IpAddr::from([127, 0, 0, 0]), prefix: 8 });
                    self.networks.push(Network { base: std::net::Ipv6Addr::LOCALHOST.into(), prefix: 128 });
                }
                self.names.insert(plain(&name).to_owned());
            }
            _ => {
                let right = "write a network (\"10.0.0.0/8\"), an address or a host's name without a port";
                return Err(format!("`{entry}` names no address: {right}"));
            }
        }
        Ok(())
    }

    /// The addresses of a name that may be called; refused if none of them may.
    pub(super) fn dialable<A>(&self, name: &str, found: Vec<A>) -> Result<Vec<A>, Refused>
    where
        A: Copy + Into<std::net::SocketAddr>,
    {
        if self.names.contains(plain(name)) {
            return Ok(found);
        }
        let mut refused = None;
        let mut dialable = found;
        dialable.retain(|address| match self.check((*address).into().ip()) {
            Ok(()) => true,
            Err(reason) => {
                refused.get_or_insert(Refused { name: Some(name.to_owned()), ..reason });
                false
            }
        });
        match refused {
            Some(refused) if dialable.is_empty() => Err(refused),
            _ => Ok(dialable),
        }
    }

    /// Whether a URL may be called as far as it says so itself: one that holds an address never asks DNS.
    pub(super) fn check_host(&self, host: Option<Host<&str>>) -> Result<(), Refused> {
        match host {
            Some(Host::Ipv4(address)) => self.check(address.into()),
            Some(Host::Ipv6(address)) => self.check(address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let address = address.to_canonical();
        match not_public(address) {
            Some(kind) if !self.networks.iter().any(|network| network.contains(address)) => {
                Err(Refused { name: None, address, kind })
            }
            _ => Ok(()),
        }
    }
}

impl Network {
    fn new(base: &str, prefix: &str) -> Result<Self, String> {
        let wrong = || format!("`{base}/{prefix}` is not a network: write it as \"10.0.0.0/8\"");
        let base: IpAddr = base.trim().parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.trim().parse().map_err(|_| wrong())?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        if prefix > width {
            return Err(wrong());
        }
        let network = Self { base, prefix };
        let first = network.first();
        if first != base {
            return Err(format!(
                "`{base}/{prefix}` has bits after its first {prefix}: write \"{first}/{prefix}\""
            ));
        }
        Ok(network)
    }

    fn contains(self, address: IpAddr) -> bool {
        // The same address has one form only when it is compared: `::ffff:10.0.0.1` is `10.0.0.1`.
        let (base, prefix) = match self.base {
            IpAddr::V6(base) if self.prefix >= 96 && base.to_ipv4_mapped().is_some() => {
                (self.base.to_canonical(), self.prefix - 96)
            }
            base => (base, self.prefix),
        };
        base.is_ipv4() == address.is_ipv4() && Self { base: address, prefix }.first() == base
    }

    fn first(self) -> IpAddr {
        match self.base {
            IpAddr::V4(base) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                std::net::Ipv4Addr::from_bits(base.to_bits() & mask).into()
            }
            IpAddr::V6(base) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                std::net::Ipv6Addr::from_bits(base.to_bits() & mask).into()
            }
        }
    }
}

fn host_of(address: IpAddr) -> Host {
    match address {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

/// `mailer.` is `mailer`: the dot only says that the name is whole.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn allow(entries: &[&str]) -> Allow {
        let mut allow = Allow::default();
        entries.iter().for_each(|entry| allow.add(entry).unwrap());
        allow
    }

    fn may(allow: &Allow, address: &str) -> bool {
        allow.check(address.parse().unwrap()).is_ok()
    }

    #[test]
    fn nothing_but_the_public_internet_by_default() {
        assert!(may(&Allow::default(), "1.1.1.1"));
        for address in ["10.0.0.1", "127.0.0.1", "::1", "::ffff:10.0.0.1", "169.254.169.254"] {
            assert!(!may(&Allow::default(), address), "{address}");
        }
    }

    #[test]
    fn networks_and_addresses_are_named_exactly() {
        let some =
            allow(&["10.1.0.0/16", "192.168.7.7", "fd00:1::/32", "[fd00:2::1]", "::ffff:172.16.0.0/108"]);
        for address in [
            "10.1.0.0",
            "10.1.255.255",
            "::ffff:10.1.2.3",
            "192.168.7.7",
            "fd00:1::9",
            "fd00:2::1",
            "172.31.0.1",
        ] {
            assert!(may(&some, address), "{address}");
        }
        for address in ["10.0.255.255", "10.2.0.0", "192.168.7.8", "fd00:3::9", "fd00:2::2", "127.0.0.1"] {
            assert!(!may(&some, address), "{address}");
        }
        assert!(may(&allow(&["0.0.0.0/0"]), "10.0.0.1") && !may(&allow(&["0.0.0.0/0"]), "::1"));
        assert!(may(&allow(&["::/0"]), "::1") && !may(&allow(&["::/0"]), "10.0.0.1"));
    }

    #[test]
    fn localhost_is_the_name_and_the_addresses() {
        let local = allow(&["LocalHost"]);
        assert!(may(&local, "127.0.0.1") && may(&local, "127.8.8.8") && may(&local, "::1"));
        assert!(!may(&local, "10.0.0.1"));
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert!(local.dialable("localhost", vec![loopback]).is_ok());
        assert!(Allow::default().dialable("localhost", vec![loopback]).is_err());
    }

    #[test]
    fn a_name_may_be_anywhere_and_other_names_only_where_addresses_are_allowed() {
        let named = allow(&["mailer.internal."]);
        let found: Vec<SocketAddr> = ["10.0.0.7:0", "1.1.1.1:0"].iter().map(|a| a.parse().unwrap()).collect();
        assert_eq!(named.dialable("mailer.internal", found.clone()).unwrap(), found);
        assert_eq!(named.dialable("mailer.internal.", found.clone()).unwrap(), found);
        assert_eq!(named.dialable("other", found.clone()).unwrap(), found[1..]);
        let refused = named.dialable("other", found[..1].to_vec()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "other is at 10.0.0.7, a private address, and [http] allow names neither"
        );
        let refused = named.check("10.0.0.7".parse().unwrap()).unwrap_err();
        assert_eq!(refused.to_string(), "10.0.0.7 is a private address that [http] allow does not name");
    }

    #[test]
    fn urls_spell_addresses_in_many_ways() {
        for url in [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1./",
            "http://[::ffff:7f00:1]/",
        ] {
            let url = url::Url::parse(url).unwrap();
            assert!(Allow::default().check_host(url.host()).is_err(), "{url}");
            assert!(allow(&["localhost"]).check_host(url.host()).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for entry in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "/8",
            "mailer/8",
            "10.0.0.1/8",
            "fd00::1/16",
            "http://mailer",
            "mailer:80",
            "*.internal",
            "a b",
            ".",
            "300.1.1.1",
        ] {
            assert!(Allow::default().add(entry).is_err(), "{entry}");
        }
        let hint = Allow::default().add("10.1.2.3/8").unwrap_err();
        assert!(hint.ends_with("write \"10.0.0.0/8\""), "{hint}");
    }
}
