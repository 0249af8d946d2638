//! Passes the octets of connections on, both ways: between a socket file and a TCP port, so that the status socket
//! of a gateway in a guest can be asked from outside. Nothing here knows what the octets mean.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// Octets passed on at once.
const PART: usize = 16_384;

/// Joins two connections until either end closes its own; threads of their own do the work.
///
/// # Errors
/// A connection cannot be duplicated.
pub fn join(unix: UnixStream, tcp: TcpStream) -> io::Result<[JoinHandle<()>; 2]> {
    let (unix_in, tcp_in) = (unix.try_clone()?, tcp.try_clone()?);
    Ok([
        std::thread::spawn(move || {
            pass(unix_in, &tcp);
            // Gone already is as good.
            let _ = tcp.shutdown(Shutdown::Write);
        }),
        std::thread::spawn(move || {
            pass(tcp_in, &unix);
            let _ = unix.shutdown(Shutdown::Write);
        }),
    ])
}

/// Until the source ends or the sink takes no more.
fn pass(mut from: impl Read, mut to: impl Write) {
    let mut part = [0; PART];
    while let Ok(count @ 1..) = from.read(&mut part) {
        let Some(octets) = part.get(..count) else {
            return;
        };
        if to.write_all(octets).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn octets_pass_both_ways_and_an_end_is_passed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut near, inner) = UnixStream::pair().unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let threads = join(inner, tcp).unwrap();
        near.write_all(b"question\n").unwrap();
        let mut far = BufReader::new(far);
        let mut line = String::new();
        far.read_line(&mut line).unwrap();
        assert_eq!(line, "question\n");
        far.get_mut().write_all(b"answer\n").unwrap();
        drop(far);
        let mut all = String::new();
        near.read_to_string(&mut all).unwrap();
        assert_eq!(all, "answer\n");
        drop(near);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
