//! Exporter sessions: identifiers of epochs and reports (`ids`), messages being filled (`message`),
//! options (`options`) and the session that owns them all.

mod ids;

pub use ids::{EpochIds, Ids};
