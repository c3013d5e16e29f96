//! Which TCP sockets a process has, as the kernel tells it.

use std::collections::BTreeSet;
use std::fs;

use crate::common::Process;

/// `st` of a socket that listens, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The ports that a process listens on.
pub(crate) fn listened(process: &Process) -> BTreeSet<u16> {
    sockets(process).into_iter().filter(|socket| socket.state == LISTEN).map(|socket| socket.local).collect()
}

/// Whether a process has a connection to a port, in any state.
pub(crate) fn is_connected_to(process: &Process, port: u16) -> bool {
    sockets(process).iter().any(|socket| socket.remote == port)
}

struct Socket {
    local: u16,
    remote: u16,
    state: String,
}

fn sockets(process: &Process) -> Vec<Socket> {
    let folder = format!("/proc/{}", process.pid());
    let open = fs::read_dir(format!("{folder}/fd")).expect("it runs").flatten();
    let own: BTreeSet<String> = open
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter_map(|target| {
            let target = target.to_str()?.strip_prefix("socket:[")?;
            Some(target.trim_end_matches(']').to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("{folder}/net/{table}")));
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| own.contains(fields[9]))
        .map(|fields| Socket { local: port(fields[1]), remote: port(fields[2]), state: fields[3].to_owned() })
        .collect()
}

/// The port of an address such as `0100007F:1F90`.
fn port(address: &str) -> u16 {
    let (_, port) = address.rsplit_once(':').expect("an address and a port");
    u16::from_str_radix(port, 16).expect("a hexadecimal number")
}
