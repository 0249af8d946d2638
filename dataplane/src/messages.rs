//! CREM datagrams that reached us: addressed to us, or to a host that we serve (AMB-PAIR,
//! AMB-PRICEPT). What is for a protocol function is handed to it, everything else stops and is counted.

use std::net::IpAddr;

use crem_core::time::Instant;
use crem_wire::crem::registry::MessageType;
use crem_wire::crem::{Message, Parsed, parse};
use crem_wire::frame::{self, udp_checksum_ok};

use crate::buffer::{Buffer, Platform, Port};
use crate::classify::{Datagram, Side};
use crate::protect::Surroundings;
use crate::rate::WanRate;
use crate::segment::Segment;

/// Tries to send what still waits at the end.
const LAST_FLUSHES: u32 = 1000;

impl<P: Platform> Segment<P> {
    /// Reads one datagram.
    pub(crate) fn message(&mut self, now: Instant, datagram: &Datagram, frame: P::Buf) {
        if !is_intact(frame.octets(), datagram) {
            self.counters.messages.checksum += 1;
            return;
        }
        let payload = payload(frame.octets(), datagram);
        match parse(payload) {
            Err(e) => self.counters.messages.count_malformed(e),
            Ok(Parsed::Repair(header, symbol)) => {
                self.counters.messages.count_received(MessageType::Repair);
                if datagram.to_served {
                    self.counters.messages.boundary += 1;
                    return;
                }
                if self.came_astray(datagram, MessageType::Repair) {
                    return;
                }
                let Some(protection) = &mut self.protection else {
                    self.counters.messages.off += 1;
                    return;
                };
                // The symbol is the end of the payload.
                let end = usize::from(datagram.payload_off) + payload.len();
                let off = u16::try_from(end - symbol.len())
                    .ok()
                    .filter(|_| !header.info);
                let symbol = off.map(|off| (frame, off));
                protection.repair(now, datagram.from, &header, symbol, datagram.ce);
            }
            Ok(Parsed::Message(message)) => self.other(now, datagram, &message),
        }
    }

    /// Whether a message to us came in by another port than its sender's messages do, which is counted: a
    /// host that wrote a peer's address and guessed a Flow ID must not speak for the peer (AMB-PEERADDR).
    /// What is read in a host's stead came with its flow, and nodes that report are at no port of their
    /// own. HELLO and the answer to it, which has its nonce, may come by either port before the next hop
    /// toward their sender is known: what is said next is what makes it known.
    fn came_astray(&mut self, datagram: &Datagram, kind: MessageType) -> bool {
        let sender = datagram.from.ip();
        let Some(inband) = &self.inband else {
            return false;
        };
        let by_either = match kind {
            MessageType::PathReport => true,
            MessageType::Hello | MessageType::HelloAck => !inband.knows(sender),
            _ => false,
        };
        if datagram.to_served || by_either || inband.entrance(sender) == datagram.side {
            return false;
        }
        match datagram.side {
            Side::Lan => self.counters.messages.wrong_port_lan += 1,
            Side::Wan => self.counters.messages.wrong_port_wan += 1,
        }
        true
    }

    fn other(&mut self, now: Instant, datagram: &Datagram, message: &Message) {
        let kind = message.message_type();
        self.counters.messages.count_received(kind);
        if self.came_astray(datagram, kind) {
            return;
        }
        let counters = &mut self.counters.messages;
        match message {
            Message::Hello(hello) => {
                if !self.view.serves(hello.flow.destination) {
                    counters.not_served += 1;
                    return;
                }
                counters.intercepted += u64::from(datagram.to_served);
            }
            Message::PathReport(_) => counters.intercepted += u64::from(datagram.to_served),
            _ if datagram.to_served => {
                counters.boundary += 1;
                return;
            }
            _ => {}
        }
        match &mut self.protection {
            Some(protection) => protection.message(now, datagram.from, message, datagram.ce),
            None => counters.off += 1,
        }
    }

    /// Carries out what the protocol functions decided.
    pub(crate) fn settle(&mut self, now: Instant) {
        let (Some(protection), Some(inband)) = (&mut self.protection, &mut self.inband) else {
            return;
        };
        let mut around = Surroundings {
            pool: &self.pool,
            inband,
            counters: &mut self.counters,
            restored: &mut self.restored,
            messages: &mut self.out_messages,
        };
        protection.settle(&mut around, now, &mut self.to_lan);
        if let Some(restored) = &self.restored {
            self.lan.device.mark_restored(restored);
        }
        for (side, frame) in self.out_messages.drain(..) {
            match side {
                Side::Lan => self.to_lan.push(frame),
                Side::Wan => self.to_wan.push(frame),
            }
        }
        self.send_both();
        self.tell_facts();
    }

    /// Lets timers run that are due, those of the receiver function only with `receiver`.
    pub(crate) fn run_timers(&mut self, now: Instant, receiver: bool) -> bool {
        let any = self
            .protection
            .as_mut()
            .is_some_and(|p| p.run_timers(now, receiver));
        if any {
            self.settle(now);
        }
        any | self.run_watch(now)
    }

    /// Sends repair into the room that sources left.
    pub(crate) fn send_repair(&mut self, now: Instant) -> bool {
        let Some(protection) = &mut self.protection else {
            return false;
        };
        let queue = protection.repairs();
        if let Some(rate) = &self.wan_rate {
            let (frames, octets) = (self.wan.counters.tx_frames, self.wan.counters.tx_octets);
            let before = core::mem::replace(&mut self.wan_sent, (frames, octets));
            rate.spend(WanRate::on_wire(frames - before.0, octets - before.1));
        }
        if queue.is_empty() {
            return false;
        }
        let c = &mut self.counters;
        let rate = self.wan_rate.as_deref();
        queue.send(now, rate, &mut self.wan, &mut c.drops, &mut c.coding);
        // That was spent already.
        self.wan_sent = (self.wan.counters.tx_frames, self.wan.counters.tx_octets);
        true
    }

    /// Next hops that are lacking.
    pub fn take_wanted(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        self.protection
            .iter_mut()
            .flat_map(|p| p.wanted().drain(..))
    }

    /// The kernel found or lost a next hop.
    pub fn set_next_hop(&mut self, peer: IpAddr, mac: Option<frame::Mac>) {
        if let Some(inband) = &mut self.inband {
            inband.set_next_hop(peer, mac);
        }
    }

    /// Lets go of everything held and takes leave of the peers.
    pub fn close(&mut self, now: Instant) {
        self.guarded(now, |s| s.take_leave(now));
        self.last_flush();
        self.meter(now);
        if let Some(metering) = &mut self.metering {
            metering.close(now);
        }
    }

    fn last_flush(&mut self) {
        for _ in 0..LAST_FLUSHES {
            let (lan, wan) = (self.lan.flush(), self.wan.flush());
            if lan && wan {
                return;
            }
        }
        self.counters.drops.tx_full_lan += self.lan.waiting() as u64;
        self.counters.drops.tx_full_wan += self.wan.waiting() as u64;
    }

    /// Gives up kept references if the pool has fewer than `reserve` buffers left.
    pub fn spare_buffers(&mut self, now: Instant, reserve: u32) {
        let (taken, all) = self.buffers();
        let short = reserve.saturating_sub(all.saturating_sub(taken));
        if let Some(protection) = self.protection.as_mut().filter(|_| short > 0) {
            protection.give_up(now, short);
            self.settle(now);
        }
    }
}

pub(crate) fn payload<'a>(frame: &'a [u8], datagram: &Datagram) -> &'a [u8] {
    let from = usize::from(datagram.payload_off);
    frame
        .get(from..from + usize::from(datagram.payload_len))
        .unwrap_or_default()
}

/// Whether the UDP checksum, if there is one, is right.
fn is_intact(frame: &[u8], datagram: &Datagram) -> bool {
    const UDP_HEADER: usize = 8;
    let payload_off = usize::from(datagram.payload_off);
    let end = payload_off + usize::from(datagram.payload_len);
    let segment = payload_off
        .checked_sub(UDP_HEADER)
        .and_then(|from| frame.get(from..end));
    segment.is_some_and(|s| udp_checksum_ok(datagram.from.ip(), datagram.destination, s))
}
