//! What a segment of one worker gives to the others and does with what they give: packets of flows that
//! are not its own go to their owner, messages to the worker that they are for, facts to all.

use std::sync::Arc;

use crem_core::packet::Desc;
use crem_core::time::Instant;
use crem_wire::crem::registry::MessageType;
use crem_wire::crem::{Message, Parsed, parse, peek};

use super::{Fact, Item, Team, inbox_room};
use crate::buffer::{BURST, Buffer, Platform};
use crate::classify::{Datagram, Side};
use crate::messages::payload;
use crate::order::Arrival;
use crate::protect::Share;
use crate::segment::Segment;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// To this worker: it is for it, or for nobody.
    Mine,
    /// To another one.
    Of(u16),
    /// To the sender function of the first and the receiver function of the second.
    Both(u16, u16),
}

/// What others received is not timed: when it came is not known.
const NOT_HERE: Option<&fn() -> Instant> = None;

impl<P: Platform> Segment<P> {
    /// One of several workers of the segment.
    pub fn with_team(mut self, team: Team<P>) -> Self {
        let room = inbox_room(team.place.count);
        self.descs.reserve(room);
        self.arrivals.reserve(room);
        self.inbox = Vec::with_capacity(room);
        self.inbox_descs = Vec::with_capacity(room);
        self.asked = Vec::with_capacity(BURST);
        self.handed_mail = Vec::with_capacity(room);
        self.facts = Vec::with_capacity(BURST);
        self.team = Some(team);
        self.look_for_flows();
        self
    }

    /// Whether frames are looked at for flows: while this worker protects or watches some, or others may.
    pub(crate) fn look_for_flows(&mut self) {
        let others = self.team.is_some();
        self.view.active = self.protection.is_some() || others && self.guard.is_wanted();
        self.view.watched = self.watch.is_some() || others && self.guard.watched().is_some();
    }

    /// Which worker this is, for its protocol functions.
    pub(crate) fn share(&self) -> Share {
        self.team.as_ref().map_or(Share::ALONE, |team| Share {
            place: team.place,
            directory: Some(Arc::clone(&team.directory)),
        })
    }

    /// Takes no station for known any more: another worker may have seen it elsewhere.
    pub(crate) fn look_anew(&mut self) {
        if let (Some(_), Some(inband)) = (&self.team, &mut self.inband) {
            inband.look_anew();
        }
    }

    /// Hands what came from the WAN to the owner of its flow. `None` if that has happened.
    #[inline]
    pub(crate) fn keep_received(&mut self, desc: Desc<P::Buf>) -> Option<Desc<P::Buf>> {
        let Some(team) = &mut self.team else {
            return Some(desc);
        };
        let Some(owner) = team.elsewhere(&desc.key) else {
            return Some(desc);
        };
        match team.give(owner, Item::Received(desc)) {
            Ok(()) => self.counters.team.received_out += 1,
            Err(_) => self.counters.drops.handover_full += 1,
        }
        None
    }

    /// Hands the packets of a burst from the LAN, which are on their way, to the owners of their flows;
    /// those of this worker stay. READ and atomic requests are shown to everybody.
    pub(crate) fn hand_over_sent(&mut self) {
        let Some(team) = &mut self.team else { return };
        let counters = &mut self.counters.team;
        let mut descs = core::mem::take(&mut self.descs);
        for desc in descs.drain(..) {
            if self.view.responses && desc.asks() {
                counters.facts_lost += team.give_all(|| Item::Asked(desc.clone()));
            }
            match team.elsewhere(&desc.key) {
                None => self.inbox_descs.push(desc),
                Some(owner) => match team.give(owner, Item::Sent(desc)) {
                    Ok(()) => counters.sent_out += 1,
                    Err(_) => counters.unseen += 1,
                },
            }
        }
        self.descs = core::mem::replace(&mut self.inbox_descs, descs);
    }

    /// Whether the worker may take a burst from the WAN.
    pub(crate) fn may_receive(&mut self, clock: &impl Fn() -> Instant) -> bool {
        let Some(team) = &mut self.team else {
            return true;
        };
        let may = team.has_room(clock);
        self.counters.team.waited += u64::from(!may);
        may
    }

    /// Hands a message to whom it is for; gives it back if that is this worker.
    pub(crate) fn keep_mail(
        &mut self,
        datagram: Datagram,
        frame: P::Buf,
    ) -> Option<(Datagram, P::Buf)> {
        match self.whose(&datagram, &frame) {
            Whose::Mine => Some((datagram, frame)),
            Whose::Of(worker) => {
                self.hand_mail(worker, datagram, frame);
                None
            }
            Whose::Both(sender, receiver) => {
                let own = self.team.as_ref().map(|team| team.place.index);
                let mut kept = None;
                for worker in [sender, receiver] {
                    if Some(worker) == own {
                        kept = Some((datagram, frame.clone()));
                    } else {
                        self.hand_mail(worker, datagram, frame.clone());
                    }
                }
                kept
            }
        }
    }

    fn hand_mail(&mut self, worker: u16, datagram: Datagram, frame: P::Buf) {
        let Some(team) = &mut self.team else { return };
        match team.give(worker, Item::Mail(datagram, frame)) {
            Ok(()) => self.counters.team.mail_out += 1,
            Err(_) => self.counters.team.mail_lost += 1,
        }
    }

    /// Messages to receiver functions name a Flow ID that this gateway drew, messages to sender functions
    /// one that the peer drew, and others a flow.
    fn whose(&self, datagram: &Datagram, frame: &P::Buf) -> Whose {
        let Some(team) = &self.team else {
            return Whose::Mine;
        };
        let payload = payload(frame.octets(), datagram);
        let Some((kind, id)) = peek(payload) else {
            return Whose::Mine;
        };
        let drawn = id.map(|id| team.place.stamped(u64::from(id.get())));
        let noted = id.and_then(|id| team.directory.find(datagram.from, id));
        let worker = match kind {
            MessageType::Repair | MessageType::ParamUpdate => drawn,
            MessageType::ParamAck | MessageType::RepairRequest | MessageType::LossReport => noted,
            MessageType::Close => match (noted, drawn) {
                (Some(sender), Some(receiver)) if sender != receiver => {
                    return Whose::Both(sender, receiver);
                }
                _ => noted.or(drawn),
            },
            // These are few, and name what they are about farther behind.
            MessageType::Hello | MessageType::HelloAck | MessageType::PathReport => {
                match parse(payload) {
                    Ok(Parsed::Message(Message::HelloAck(ack))) => {
                        Some(team.place.stamped(ack.nonce))
                    }
                    Ok(Parsed::Message(Message::Hello(m))) => Some(team.owner_named(&m.flow)),
                    Ok(Parsed::Message(Message::PathReport(m))) => Some(team.owner_named(&m.flow)),
                    _ => None,
                }
            }
        };
        match worker {
            Some(worker) if worker != team.place.index => Whose::Of(worker),
            _ => Whose::Mine,
        }
    }

    /// Gives others the frames and facts that are theirs.
    pub(crate) fn tell_facts(&mut self) {
        let (Some(team), Some(protection)) = (&mut self.team, &mut self.protection) else {
            return;
        };
        for fact in protection.facts().drain(..) {
            self.counters.team.facts_lost += team.give_all(|| Item::Fact(fact));
        }
    }

    /// Does with what other workers handed in what it would have done itself. Whether there was anything,
    /// and whether more waits.
    pub(crate) fn serve_inbox(&mut self, clock: &impl Fn() -> Instant) -> (bool, bool) {
        let Some(team) = &mut self.team else {
            return (false, false);
        };
        let mut inbox = core::mem::take(&mut self.inbox);
        let more = team.take_in(&mut inbox);
        let any = !inbox.is_empty();
        if any {
            let now = clock();
            self.sort_inbox(&mut inbox, now);
            self.guarded(now, |s| s.offer_handed_sent(now));
            self.take_handed_received();
            self.guarded(now, |s| {
                s.offer_to_receiver(now, NOT_HERE);
                s.read_handed(now);
            });
        }
        self.inbox = inbox;
        (any, more)
    }

    fn sort_inbox(&mut self, inbox: &mut Vec<Item<P::Buf>>, now: Instant) {
        for item in inbox.drain(..) {
            match item {
                Item::Sent(desc) => self.descs.push(desc),
                Item::Received(desc) => self.inbox_descs.push(desc),
                Item::Asked(desc) => self.asked.push(desc),
                Item::Mail(datagram, frame) => self.handed_mail.push((datagram, frame)),
                Item::Kernel(frame) => self.punt(frame, now),
                Item::Fact(fact) => self.facts.push(fact),
            }
        }
        let counters = &mut self.counters.team;
        counters.sent_in += self.descs.len() as u64;
        counters.received_in += self.inbox_descs.len() as u64;
        counters.mail_in += self.handed_mail.len() as u64;
    }

    /// Facts and packets toward the WAN, for the sender function.
    fn offer_handed_sent(&mut self, now: Instant) {
        let (mut facts, mut asked) = (
            core::mem::take(&mut self.facts),
            core::mem::take(&mut self.asked),
        );
        if let Some(protection) = &mut self.protection {
            facts.iter().for_each(|f| protection.take_fact(now, f));
            if !asked.is_empty() {
                protection.requests_sent(now, &asked);
            }
            if !self.descs.is_empty() {
                protection.sources_sent(now, &self.descs);
            }
        }
        facts.clear();
        asked.clear();
        (self.facts, self.asked) = (facts, asked);
        self.descs.clear();
        self.settle(now);
    }

    fn take_handed_received(&mut self) {
        core::mem::swap(&mut self.descs, &mut self.inbox_descs);
        let all = (0..self.descs.len()).map(Arrival::Flow);
        self.arrivals.extend(all);
    }

    fn read_handed(&mut self, now: Instant) {
        if self.handed_mail.is_empty() {
            return;
        }
        let mut mail = core::mem::take(&mut self.handed_mail);
        for (datagram, frame) in mail.drain(..) {
            self.message(now, &datagram, frame);
        }
        self.handed_mail = mail;
        self.settle(now);
    }

    /// Sends what other workers send by this one's queues.
    pub(crate) fn serve_relayed(&mut self) -> bool {
        let Some(team) = &mut self.team else {
            return false;
        };
        let (to_lan, to_wan, restored) = (&mut self.to_lan, &mut self.to_wan, &mut self.restored);
        let mut count = 0;
        let any = team.take_relayed(|side, relayed| {
            count += 1;
            if let Some(restored) = restored.as_mut().filter(|_| relayed.restored) {
                restored.push(relayed.frame.clone());
            }
            match side {
                Side::Lan => to_lan.push(relayed.frame),
                Side::Wan => to_wan.push(relayed.frame),
            }
        });
        if any {
            self.counters.team.relayed += count;
            self.send_both();
        }
        any
    }

    /// Gives a frame for the in-band interface to the worker that has it; gives it back if that is this
    /// one.
    pub(crate) fn keep_for_kernel(&mut self, frame: P::Buf) -> Option<P::Buf> {
        match &mut self.team {
            Some(team) if !team.is_home() => {
                let lost = team.give(0, Item::Kernel(frame)).is_err();
                self.counters.team.kernel_lost += u64::from(lost);
                None
            }
            _ => Some(frame),
        }
    }

    /// Tells others what passed that their sender functions may learn from.
    pub(crate) fn share_learnt(&mut self) {
        let Some(team) = &mut self.team else { return };
        let managed = self.managed.iter().map(|m| Fact::Managed(*m));
        let acks = self.acks.iter().map(|a| Fact::Acked(*a));
        let lost: u64 = managed
            .chain(acks)
            .map(|fact| team.give_all(|| Item::Fact(fact)))
            .sum();
        self.counters.team.facts_lost += lost;
    }
}
