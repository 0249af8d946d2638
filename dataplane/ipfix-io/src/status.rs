//! The status socket of a process that has one thread: one JSON line in, one out
//! (`crem_api::protocol`), never waiting.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crem_api::protocol::{Ask, Body, ErrorCode, ErrorReply, Get, MAX_REQUEST, Reply, Request};
use crem_api::socket;
use crem_meter::Utc;

use crate::link::would_block;
use crate::wait::Interest;

/// Clients at once.
const CLIENTS: usize = 16;
/// How long a client may keep its place without asking.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    touched: Utc,
}

/// The server.
#[derive(Debug)]
pub(crate) struct StatusServer {
    path: PathBuf,
    listener: UnixListener,
    clients: Vec<Client>,
}

impl StatusServer {
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            listener: socket::listen(path)?,
            clients: Vec::new(),
        })
    }

    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let listener = Interest {
            fd: self.listener.as_fd(),
            read: true,
            write: false,
        };
        let clients = self.clients.iter().map(|client| Interest {
            fd: client.stream.as_fd(),
            read: client.reply.is_empty(),
            write: !client.reply.is_empty(),
        });
        std::iter::once(listener).chain(clients)
    }

    /// Serves who can be served now.
    pub(crate) fn drive(&mut self, now: Utc, at_ms: u64, answer: &mut dyn FnMut(Get) -> Body) {
        while let Ok((stream, _)) = self.listener.accept() {
            // One too many is closed again.
            if self.clients.len() < CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    request: Vec::new(),
                    reply: Vec::new(),
                    touched: now,
                });
            }
        }
        self.clients.retain_mut(|client| {
            let served = client.serve(now, at_ms, answer);
            served.is_ok() && now.since(client.touched) < SILENCE
        });
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Client {
    fn serve(
        &mut self,
        now: Utc,
        at_ms: u64,
        answer: &mut dyn FnMut(Get) -> Body,
    ) -> io::Result<()> {
        loop {
            self.send()?;
            if !self.reply.is_empty() {
                return Ok(());
            }
            if let Some(end) = self.request.iter().position(|octet| *octet == b'\n') {
                let line: Vec<u8> = self.request.drain(..=end).collect();
                self.touched = now;
                // What is no UTF-8 is no JSON either, and told as that.
                let body = match Request::parse(&String::from_utf8_lossy(&line)) {
                    Ok(Request {
                        ask: Ask::Get(get), ..
                    }) => answer(get),
                    Ok(_) => Body::Error(ErrorReply::new(
                        ErrorCode::Unknown,
                        "the exporting process takes no document here",
                    )),
                    Err(refusal) => Body::Error(refusal),
                };
                self.reply = Reply::new(at_ms, body).to_line().into_bytes();
                continue;
            }
            if self.request.len() >= MAX_REQUEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut buffer = [0; MAX_REQUEST];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(octets) => self.request.extend_from_slice(&buffer[..octets]),
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.reply.is_empty() {
            match self.stream.write(&self.reply) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(octets) => drop(self.reply.drain(..octets)),
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
