//! Takes log lines where they are made. Nothing here waits or fails.

use std::fmt::{Debug, Write};

use crem_api::SyslogLevel;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::Feed;
use super::message::Line;
use crate::clock;

/// Gives lines to a [`Feed`].
#[derive(Debug)]
pub struct Forward(pub Feed);

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => SyslogLevel::Error,
            Level::WARN => SyslogLevel::Warning,
            Level::INFO => SyslogLevel::Info,
            _ => return,
        };
        let mut taken = Taken::default();
        event.record(&mut taken);
        self.0.push(Line {
            at_ms: clock::now().wall_ms,
            level,
            id: taken
                .kind
                .unwrap_or_else(|| event.metadata().target().to_owned()),
            text: taken.text,
            fields: taken.fields,
        });
    }
}

#[derive(Default)]
struct Taken {
    text: String,
    kind: Option<String>,
    fields: Vec<(&'static str, String)>,
}

impl Taken {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.text = value,
            "kind" => self.kind = Some(value),
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Taken {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
        self.take(field, text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn lines_come_with_their_fields_and_never_wait() {
        let feed = Feed::default();
        let mut lines = feed.subscribe();
        let subscriber = tracing_subscriber::registry().with(Forward(feed));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(kind = "drift", revision = 7, "there {}", "is");
            tracing::debug!("too small");
            for n in 0..super::super::QUEUE + 10 {
                tracing::info!(n, "more than fit");
            }
        });
        // The oldest are gone, and that is told.
        let lagged = lines.try_recv().unwrap_err();
        assert_eq!(
            lagged,
            tokio::sync::broadcast::error::TryRecvError::Lagged(11)
        );
        let first = lines.try_recv().unwrap();
        assert_eq!(first.fields, [("n", "10".to_owned())]);
        assert_eq!(
            (first.level, first.text.as_str()),
            (SyslogLevel::Info, "more than fit")
        );
    }

    #[test]
    fn a_kind_names_the_line() {
        let feed = Feed::default();
        let mut lines = feed.subscribe();
        let subscriber = tracing_subscriber::registry().with(Forward(feed));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(kind = "drift", revision = 7, "there {}", "is");
        });
        let line = lines.try_recv().unwrap();
        assert_eq!(
            (line.id.as_str(), line.text.as_str()),
            ("drift", "there is")
        );
        assert_eq!(line.fields, [("revision", "7".to_owned())]);
    }
}
