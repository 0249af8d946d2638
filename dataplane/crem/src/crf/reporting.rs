//! When LOSS_REPORT is sent, and when a flow rests (AMB-LRINT, AMB-LRACTIVE). The counts are in
//! `tally.rs`.

use crem_wire::crem::Message;

use super::track::{Cx, Track};
use super::window::Window;
use crate::time::Instant;

impl<B: Clone> Track<B> {
    /// A resting flow found out about losses: it reports once more.
    pub(crate) fn resume_reports(&mut self, now: Instant) {
        if self.report_due.is_none() && self.tally.is_pending() {
            self.tally.resume(now);
            self.report_due = Some(now + self.times.srtt);
        }
    }

    /// Sends the LOSS_REPORT that is due (AMB-LRINT, AMB-LRACTIVE).
    pub(crate) fn report(&mut self, cx: &mut Cx<'_, B>) {
        self.resume_reports(cx.now);
        match self.report_due {
            Some(due) if due <= cx.now => {}
            Some(_) => return,
            None => return self.rest(cx),
        }
        self.went_back -= self.went_back / 16;
        let flow = self.offer.flow;
        if let Some(report) = self.tally.report(cx.now, self.times.allowance, flow) {
            cx.shared.counters.reports += 1;
            cx.send(self.offer.peer, Message::LossReport(report), self.dscp);
        }
        if self.tally.is_pending() {
            self.report_due = Some(cx.now + self.times.srtt);
            return;
        }
        self.report_due = None;
        self.rest(cx);
    }

    /// The flow rests. What it kept in case of a gap at its end is not needed any more.
    fn rest(&mut self, cx: &mut Cx<'_, B>) {
        self.take_suspect(cx);
        if self.replay_floor(cx).is_some() && cx.now < self.last_activity + self.times.keep() {
            // The host may be about to send a window again.
            self.rest_at = Some(self.last_activity + self.times.keep());
            return;
        }
        self.rest_at = None;
        self.take_run(cx);
        self.requests.rest();
        if let Some(next) = self.window.as_ref().map(Window::next)
            && self.gaps.is_empty()
            && self.blocks.iter().all(|block| block.closed)
            && let Some(window) = &mut self.window
        {
            window.drop_before(next, &mut cx.shared.store);
            window.rest();
            // One frame a flow lends its headers to what comes first after the rest, while there is room.
            if cx.shared.store.budget.is_half_used() {
                window.forget_last(&mut cx.shared.store);
            }
        }
    }
}
