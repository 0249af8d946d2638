//! Host names looked up beside the thread that serves collectors: the system's resolver waits, the thread
//! must not.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Which question, and its answer.
type Answer = (u16, io::Result<IpAddr>);

/// Looks names up, one question of each asker at a time.
#[derive(Debug)]
pub(crate) struct Resolver {
    answers: Receiver<Answer>,
    answer: Sender<Answer>,
    /// Readable when there is an answer.
    ready: UnixStream,
    wake: UnixStream,
    asked: BTreeSet<u16>,
}

impl Resolver {
    /// Asked nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        let (answer, answers) = channel();
        let (ready, wake) = UnixStream::pair()?;
        ready.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok(Self {
            answers,
            answer,
            ready,
            wake,
            asked: BTreeSet::new(),
        })
    }

    /// What to wait for.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Asks. A question while the last one is not answered is not asked again: its answer is as good.
    pub(crate) fn ask(&mut self, asker: u16, name: &str) -> io::Result<()> {
        if !self.asked.insert(asker) {
            return Ok(());
        }
        let (answer, mut wake) = (self.answer.clone(), self.wake.try_clone()?);
        let name = name.to_owned();
        std::thread::Builder::new()
            .name("crem-resolve".to_owned())
            .spawn(move || {
                let found = (name.as_str(), 0)
                    .to_socket_addrs()
                    .and_then(|mut all| all.next().ok_or_else(|| io::ErrorKind::NotFound.into()));
                // Nobody listens any more at the end of the process.
                let _ = answer.send((asker, found.map(|address| address.ip())));
                let _ = wake.write(&[0]);
            })
            .map(drop)
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let _ = self.ready.read(&mut [0; 16]);
        let answer = self.answers.try_recv().ok()?;
        self.asked.remove(&answer.0);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Interest, wait};
    use std::time::Duration;

    fn answer(resolver: &mut Resolver) -> Answer {
        for _ in 0..50 {
            let interest = Interest {
                fd: resolver.as_fd(),
                read: true,
                write: false,
            };
            wait(&[interest], Duration::from_millis(200)).unwrap();
            if let Some(answer) = resolver.answer() {
                return answer;
            }
        }
        unreachable!("no answer in ten seconds")
    }

    #[test]
    fn names_are_looked_up_beside_the_caller() {
        let mut resolver = Resolver::new().unwrap();
        resolver.ask(1, "localhost").unwrap();
        resolver.ask(1, "localhost").unwrap();
        let (asker, found) = answer(&mut resolver);
        assert_eq!((asker, found.unwrap().is_loopback()), (1, true));
        assert!(resolver.answer().is_none());
        resolver.ask(0, "no-such-host.invalid").unwrap();
        assert!(answer(&mut resolver).1.is_err());
    }
}
