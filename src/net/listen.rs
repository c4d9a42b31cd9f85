//! Ports that are really ours.
//!
//! libp2p listens with `SO_REUSEPORT`, so the system lets a second process of the same user listen
//! on the same port and deals out connections between the two. [`PortGuard`] makes a port exclusive:
//! a UDP socket on the same number, which the system gives to one process only, and which stays
//! open while the node listens; and a look whether another program listens there.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
};

use libp2p::Multiaddr;

use crate::net::{
    NetError,
    address::{ip_of, tcp_port_of, with_tcp_port},
};

/// Ports after a taken default one that are tried.
const FALLBACK_PORTS: u16 = 32;

/// Holds a port for this process.
#[derive(Debug)]
pub(super) struct PortGuard(#[expect(dead_code, reason = "held, not used")] UdpSocket);

/// Takes the port of `addr`, or with `fallback` the next free one after it. The address comes back
/// with its port, and with no guard if it has none to take (port 0, no TCP).
pub(super) fn take_port(
    addr: &Multiaddr,
    fallback: bool,
) -> Result<(Multiaddr, Option<PortGuard>), NetError> {
    let (Some(ip), Some(port @ 1..)) = (ip_of(addr), tcp_port_of(addr)) else {
        return Ok((addr.clone(), None));
    };
    let last = if fallback { port.saturating_add(FALLBACK_PORTS) } else { port };
    for port in port..=last {
        match guard(ip, port) {
            Ok(guard) => return Ok((with_tcp_port(addr, port), Some(guard))),
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(listen_error(addr, &error.to_string())),
        }
    }
    let addr = addr.to_string();
    Err(if fallback {
        NetError::NoFreePort { addr, tried: FALLBACK_PORTS }
    } else {
        NetError::PortTaken { addr }
    })
}

/// The error for an address that cannot be listened on.
pub(super) fn listen_error(addr: &Multiaddr, reason: &str) -> NetError {
    NetError::Listen { addr: addr.to_string(), reason: reason.to_owned() }
}

fn guard(ip: IpAddr, port: u16) -> io::Result<PortGuard> {
    let addr = SocketAddr::new(guarded_ip(ip), port);
    let held = UdpSocket::bind(addr)?;
    TcpListener::bind(addr)?;
    Ok(PortGuard(held))
}

/// The address that stands for `ip`. The standard library opens `::` for IPv4 too, which would clash
/// with this node's own `0.0.0.0`; its loopback stands for it.
fn guarded_ip(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_an_error_or_gives_way() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = holder.local_addr().unwrap().port();
        let addr: Multiaddr = format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap();
        let error = take_port(&addr, false).unwrap_err();
        assert!(error.to_string().contains("choose another one with --listen"), "{error}");
        let (found, first) = take_port(&addr, true).unwrap();
        let (next, second) = take_port(&addr, true).unwrap();
        assert!(first.is_some() && second.is_some());
        assert_ne!(found, addr);
        assert_ne!(found, next, "two nodes never share a port");
    }

    #[test]
    fn both_families_may_share_a_port_number() {
        if UdpSocket::bind("[::1]:0").is_err() {
            return; // No IPv6 here.
        }
        let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let addr = |ip| format!("{ip}/tcp/{port}").parse::<Multiaddr>().unwrap();
        let _v4 = take_port(&addr("/ip4/0.0.0.0"), false).unwrap();
        let _listening = TcpListener::bind(("0.0.0.0", port)).unwrap();
        let _v6 = take_port(&addr("/ip6/::"), false).unwrap();
        assert!(take_port(&addr("/ip6/::"), false).is_err());
    }

    #[test]
    fn an_address_of_another_machine_says_so() {
        let addr: Multiaddr = "/ip4/203.0.113.7/tcp/4001".parse().unwrap();
        assert!(matches!(take_port(&addr, true), Err(NetError::Listen { .. })));
    }
}
