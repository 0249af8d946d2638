//! Files of messages (RFC 5655), read as one session each.

use std::io;
use std::path::Path;

use crem_ipfix::collect::{CollectCounters, Deframer};
use crem_ipfix::decode::Delivery;
use crem_meter::Utc;

use super::{CollectorConfig, CollectorEvent, Peer, Tell, new_session};

/// Reads a file of messages as one session and returns what was counted.
///
/// # Errors
/// The file cannot be read, or is not IPFIX from some message on.
pub fn read_file(
    path: &Path,
    config: &CollectorConfig,
    now: Utc,
    tell: Tell<'_>,
) -> io::Result<CollectCounters> {
    let peer = Peer {
        session: 1,
        address: None,
    };
    let mut session = new_session(config, Delivery::Ordered);
    let mut deframer = Deframer::new();
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    tell(peer, CollectorEvent::Began);
    let mut end = None;
    'file: loop {
        let octets = io::Read::read(&mut file, &mut buffer)?;
        if octets == 0 {
            break;
        }
        deframer.push(&buffer[..octets]);
        loop {
            match deframer.message() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let _ = session.message(now, message, &mut |event| {
                        tell(peer, CollectorEvent::Session(&event));
                    });
                }
                Err(error) => {
                    end = Some(error);
                    break 'file;
                }
            }
        }
    }
    let partial = end.is_none() && deframer.is_partial();
    session.end(partial, &mut |event| {
        tell(peer, CollectorEvent::Session(&event))
    });
    let reason = end.map(|error| error.to_string());
    tell(peer, CollectorEvent::Ended(reason.as_deref()));
    match end {
        None => Ok(*session.counters()),
        Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}
