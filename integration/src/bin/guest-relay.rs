//! `guest-relay PORT SOCKET`: passes TCP connections on to a socket file. It runs beside a gateway in a guest, where the
//! scenario that made the guest asks it for counters and flows.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Parser;
use crem_integration::relay::join;

/// Passes TCP connections on to a socket file.
#[derive(Parser)]
struct Arguments {
    /// TCP port, at every address.
    port: u16,
    /// Socket file; it need not be there yet.
    socket: PathBuf,
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, arguments.port))?;
    for stream in listener.incoming() {
        // Whoever asks too soon finds its connection closed.
        if let (Ok(tcp), Ok(unix)) = (stream, UnixStream::connect(&arguments.socket)) {
            join(unix, tcp)?;
        }
    }
    Ok(())
}
