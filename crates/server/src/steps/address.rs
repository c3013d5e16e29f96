//! Which addresses belong to the public internet. Everything else (this machine, its network, the
//! cloud's metadata service, what is reserved) is reachable only because of where a worker runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const LOOPBACK: &str = "a loopback address";
const PRIVATE: &str = "a private address";
const LINK_LOCAL: &str = "a link-local address";
const RESERVED: &str = "a reserved address";

/// The IANA special-purpose registry, except for the few that are public after all.
const V4: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, RESERVED),
    (Ipv4Addr::new(10, 0, 0, 0), 8, PRIVATE),
    (Ipv4Addr::new(100, 64, 0, 0), 10, PRIVATE),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    // Azure's own service, which every machine there can reach at this otherwise public address.
    (Ipv4Addr::new(168, 63, 129, 16), 32, LINK_LOCAL),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(172, 16, 0, 0), 12, PRIVATE),
    (Ipv4Addr::new(192, 0, 0, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 0, 2, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 88, 99, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 168, 0, 0), 16, PRIVATE),
    (Ipv4Addr::new(198, 18, 0, 0), 15, PRIVATE),
    (Ipv4Addr::new(198, 51, 100, 0), 24, RESERVED),
    (Ipv4Addr::new(203, 0, 113, 0), 24, RESERVED),
    (Ipv4Addr::new(224, 0, 0, 0), 4, RESERVED),
    (Ipv4Addr::new(240, 0, 0, 0), 4, RESERVED),
];

/// What the address is instead of a public one; `None`: it is public.
pub(super) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |base: Ipv4Addr, prefix: u8| (base.to_bits() ^ address.to_bits()) >> (32 - prefix) == 0;
    V4.into_iter().find(|(base, prefix, _)| within(*base, *prefix)).map(|(_, _, kind)| kind)
}

fn v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        // NAT64 and 6to4 lead to the IPv4 address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            v4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)))
        }
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(LOOPBACK),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some(PRIVATE),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some(LINK_LOCAL),
        // Teredo, benchmarking and identifiers; documentation.
        [0x2001, second, ..] if second < 0x0200 || second == 0x0db8 => Some(RESERVED),
        [0x3fff, second, ..] if second < 0x1000 => Some(RESERVED),
        [first, ..] if first & 0xe000 == 0x2000 => None,
        _ => Some(RESERVED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> Option<&'static str> {
        not_public(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:0101:0101::1",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        let kinds = [
            (LOOPBACK, ["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]),
            (PRIVATE, ["10.0.0.7", "172.31.255.255", "192.168.0.1", "100.100.100.200", "fd00::1"]),
            (PRIVATE, ["fc00::", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::", "198.19.0.1"]),
            (LINK_LOCAL, ["169.254.169.254", "fe80::1", "febf::1", "::ffff:169.254.0.1", "168.63.129.16"]),
            (RESERVED, ["0.0.0.0", "0.1.2.3", "::", "255.255.255.255", "240.0.0.1"]),
            (RESERVED, ["224.0.0.1", "239.255.255.255", "ff02::1", "192.0.0.1", "192.0.2.1"]),
            (RESERVED, ["198.51.100.1", "203.0.113.1", "192.88.99.1", "2001:db8::1", "2001::1"]),
            (RESERVED, ["2001:2::1", "3fff::1", "64:ff9b:1::1", "::10.0.0.1", "5f00::1"]),
            (RESERVED, ["fec0::1", "100::1", "4000::1", "::ffff:0:0", "2001:1ff::1"]),
        ];
        for (expected, addresses) in kinds {
            for address in addresses {
                assert_eq!(kind(address), Some(expected), "{address}");
            }
        }
    }
}
