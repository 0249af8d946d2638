//! What packets of a flow, and the passing of time, lead to: blocks while it is protected, and the way to
//! a binding and the watch over it.

use crem_wire::crem::registry::CloseReason;

use super::flow::{Ctx, Flow, Io, Shared, Who};
use super::negotiate::Cause;
use super::repair::{Closing, Source};
use super::states::{Input, State};
use super::track::{self, Seen};
use crate::config::Mode;
use crate::events::Unprotected;
use crate::packet::{Desc, PktBuf};
use crate::time::Instant;

impl<B: PktBuf> Flow<B> {
    /// Takes consecutive packets of this flow.
    pub(super) fn on_run(&mut self, run: &[Desc<B>], io: &mut Io<'_, B>) {
        let mut who = self.who(io.sh, io.now);
        let mtu = self.rdma_mtu(io.sh);
        let (mut new, mut behind) = (0u32, 0u32);
        for packet in run {
            if packet
                .read_length
                .is_some_and(|length| !track::read_is_valid(length))
            {
                io.sh.counters.read_length_invalid += 1;
            }
            // A symbol has the DSCP of the packet that completes its block.
            who.dscp = packet.dscp;
            let seen = self.track.observe(packet, mtu, who.srtt, io.now);
            if self.track.took_back {
                // Blocks have called absent what is a source now, and must not overlap.
                let cause = Cause::Close(Unprotected::MtuChanged, CloseReason::Normal);
                self.step(Input::Reset, cause, io.sh, io.now);
            }
            match seen {
                Seen::Behind => behind += 1,
                Seen::New { .. } => new += 1,
                Seen::Reused { .. } => {
                    new += 1;
                    io.sh.counters.qp_reused += 1;
                    let cause = Cause::Close(Unprotected::QpReuse, CloseReason::FlowEnded);
                    self.step(Input::Reset, cause, io.sh, io.now);
                }
            }
            if self.state == State::Active {
                if seen == Seen::Behind {
                    self.note_repeated(packet, io);
                }
                self.on_protected(packet, seen, &who, io);
            }
        }
        io.sh.counters.sources_new += u64::from(new);
        io.sh.counters.sources_behind += u64::from(behind);
        self.counts.sources += u64::from(new);
        self.counts.behind += u64::from(behind);
        if self.state == State::Active {
            self.code_ahead(&who, io);
        }
        if let Some(last) = run.last() {
            self.after_run(last, new, io);
        }
    }

    fn on_protected(&mut self, packet: &Desc<B>, seen: Seen, who: &Who, io: &mut Io<'_, B>) {
        let Some(binding) = &mut self.binding else {
            return;
        };
        let counts = &mut self.counts;
        let ctx = &mut Ctx {
            sh: io.sh,
            actions: io.actions,
            now: io.now,
            who,
            counts,
        };
        match seen {
            Seen::Behind => binding.on_late(packet, ctx),
            Seen::New { jump, absent } => {
                binding.on_source(
                    &Source {
                        packet,
                        jump,
                        absent,
                    },
                    ctx,
                );
            }
            // A reuse has ended the binding.
            Seen::Reused { .. } => {}
        }
    }

    fn code_ahead(&mut self, who: &Who, io: &mut Io<'_, B>) {
        if let Some(binding) = &mut self.binding {
            binding.code_ahead(&mut Ctx {
                sh: io.sh,
                actions: io.actions,
                now: io.now,
                who,
                counts: &mut self.counts,
            });
        }
    }

    /// What packets of the flow lead to besides blocks: the way to a binding, and the watch over it.
    fn after_run(&mut self, last: &Desc<B>, new: u32, io: &mut Io<'_, B>) {
        let Io { sh, now, .. } = io;
        let now = *now;
        self.check_announced_mtu(sh, now);
        if let Some(binding) = &mut self.binding {
            binding.volume.on_sources(now, new);
        }
        match self.state {
            State::Observing if sh.cfg.mode == Mode::Monitor => {}
            State::Observing if self.track.new_packets >= u64::from(sh.cfg.csf.start_after) => {
                self.step(Input::Threshold, Cause::None, sh, now);
            }
            State::HeldOff if now >= self.held_until => {
                self.step(Input::RetryDue, Cause::None, sh, now)
            }
            State::Active => {
                let srtt = self.rtt(sh).0.unwrap_or_default();
                let limit = (srtt * 4).max(sh.cfg.csf.silence_floor);
                let silent = self
                    .binding
                    .as_mut()
                    .is_some_and(|b| b.reports.packets_passed(now, limit));
                if silent {
                    self.step(
                        Input::Silence,
                        Cause::Reason(Unprotected::NoReports),
                        sh,
                        now,
                    );
                } else {
                    self.reconsider_if_stuck(sh, now);
                }
            }
            _ => {}
        }
        if matches!(self.state, State::Queued | State::SilentQueued) {
            self.try_hello(&last.buf, sh, now);
        }
    }

    /// Without reports, only a stalled Effective PSN or an oversize packet asks for another
    /// configuration.
    fn reconsider_if_stuck(&mut self, sh: &mut Shared<B>, now: Instant) {
        let stuck = self.binding.as_ref().is_some_and(|binding| {
            binding.params.is_pending()
                || binding
                    .params
                    .active()
                    .is_some_and(|c| self.track.sizes.largest().saturating_add(2) > c.t)
        });
        if stuck {
            self.reconsider(sh, now);
        }
    }

    /// Serves what is due.
    pub(super) fn on_timer(&mut self, io: &mut Io<'_, B>) {
        let now = io.now;
        let remembered = self.state == State::HeldOff
            && self.reason == Unprotected::Breaker
            && now < self.held_until;
        if now.since(self.track.last_packet) >= io.sh.cfg.csf.idle && !remembered {
            io.sh.counters.flows_idle += 1;
            self.step(
                Input::Idle,
                Cause::Close(Unprotected::Idle, CloseReason::FlowEnded),
                io.sh,
                now,
            );
            return;
        }
        self.on_hello_timer(io.sh, now);
        self.on_param_timer(io.sh, now);
        let silent_for = matches!(self.state, State::SilentQueued | State::SilentHello)
            .then(|| {
                self.binding
                    .as_ref()
                    .map(|binding| now.since(binding.silent_since))
            })
            .flatten();
        // As the deadline has it: with the rate as it is now, which falls while nothing comes, the end
        // would move away from a timer that has fired.
        let burst_timeout = self.who(io.sh, self.track.last_packet).burst_timeout();
        self.with_binding(io, |binding, ctx| {
            let idle = ctx.now.since(binding.last_source);
            if binding.open.is_some() && idle >= burst_timeout {
                binding.close(Closing::BurstEnd, ctx);
            }
            binding.expire(ctx);
        });
        if silent_for.is_some_and(|silent| silent >= io.sh.cfg.csf.silence_close) {
            self.step(Input::SilenceOver, Cause::None, io.sh, now);
        }
    }
}
