//! Another configuration for running segments: what the auxiliary thread hands over, and how a segment
//! takes it between two bursts. Documents are read and compared elsewhere.

use crem_api::{Mode, Segment as SegmentConfig};
use crem_core::config::CoreConfig;
use crem_core::time::Instant;

use crate::buffer::Platform;
use crate::classify::View;
use crate::guard::{Guard, Remake};
use crate::metering::Change;
use crate::protect::Share;
use crate::segment::Segment;

/// Makes what makes the protocol functions of a segment; `None` where its mode has none.
pub type MakeRemake<P> = Box<dyn Fn(&SegmentConfig, &View, Share) -> Option<Remake<P>> + Send>;

/// What one segment changes into. It is given back after use, with the view that it replaced; what the
/// protocol functions had before is freed on the worker, once a change.
#[derive(Debug)]
pub struct Order {
    /// Segment, in the order of the document.
    pub segment: usize,
    /// The segment as it shall be.
    pub config: SegmentConfig,
    /// How it looks at frames then.
    pub view: View,
    /// Its configuration of the protocol functions.
    pub core: CoreConfig,
    /// Its flows are to be negotiated anew.
    pub anew: bool,
}

/// All that one document changes.
#[derive(Debug)]
pub struct Orders {
    /// Generation of the document.
    pub generation: u64,
    /// Segments that change.
    pub segments: Vec<Order>,
    /// What is observed otherwise.
    pub metering: Vec<Change>,
}

impl<P: Platform> Segment<P> {
    /// Takes another configuration. Frames that are held go out at once, and peers are told of flows that end
    /// in the turns that follow.
    pub fn reconfigure(&mut self, now: Instant, order: &mut Order, make: &MakeRemake<P>) {
        core::mem::swap(&mut self.view, &mut order.view);
        self.mode = order.config.mode;
        let remake = make(&order.config, &self.view, self.share());
        let watch = (self.mode == Mode::Monitor).then(|| order.core.clone());
        if self.mode == Mode::Active && !order.anew && self.protection.is_some() {
            self.guard.replace(remake);
            self.guarded(now, |s| {
                if let Some(protection) = &mut s.protection {
                    protection.configure(now, &order.config, &order.core);
                }
                s.settle(now);
            });
        } else if let (Some(core), Some(running), false) = (&watch, &mut self.watch, order.anew) {
            running.configure(core.clone());
            self.guard.watch_with(watch);
        } else {
            self.guarded(now, |s| s.begin_leave(now));
            self.guard = Guard::new(remake);
            self.guard.watch_with(watch);
            self.equip();
        }
        self.look_for_flows();
    }
}
