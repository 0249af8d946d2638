//! The bypass relay of a segment's ports: hardware that joins them, or parts them, without this process, and does so
//! by itself when it is not told for a while that the process lives. There is a driver for no relay and one for
//! tests; one for an adapter implements [`BypassRelay`].

use std::io;
use std::path::{Path, PathBuf};

use crem_api::{OnFailure, Relay};

/// Where a relay is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Frames come through this process.
    Inline,
    /// The ports are joined.
    Wire,
    /// The ports are parted.
    Block,
}

impl Position {
    /// Its name in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Wire => "wire",
            Self::Block => "block",
        }
    }
}

impl From<OnFailure> for Position {
    fn from(wanted: OnFailure) -> Self {
        match wanted {
            OnFailure::Wire => Self::Wire,
            OnFailure::Block => Self::Block,
        }
    }
}

/// What drives a relay. Nothing here may take long: the thread that calls does other things.
pub trait BypassRelay: Send + core::fmt::Debug {
    /// Whether there is a relay.
    fn is_present(&self) -> bool;

    /// Moves it.
    ///
    /// # Errors
    /// It did not move.
    fn set(&mut self, position: Position) -> io::Result<()>;

    /// Tells it where to go by itself when [`beat`](Self::beat) stops.
    ///
    /// # Errors
    /// It cannot.
    fn arm(&mut self, on_failure: Position) -> io::Result<()>;

    /// The process lives and forwards.
    ///
    /// # Errors
    /// It was not heard.
    fn beat(&mut self) -> io::Result<()>;
}

/// The driver that a document names.
pub fn driver(relay: &Relay) -> Box<dyn BypassRelay> {
    match relay {
        Relay::None => Box::new(NoRelay),
        Relay::Test(path) => Box::new(TestRelay::new(path)),
    }
}

/// There is none: a process that is not running forwards nothing.
#[derive(Debug)]
struct NoRelay;

impl BypassRelay for NoRelay {
    fn is_present(&self) -> bool {
        false
    }

    fn set(&mut self, _: Position) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn arm(&mut self, _: Position) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn beat(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes down what a relay would be told: a line each for its position, for where it goes by itself, and for how
/// often it was told that the process lives.
#[derive(Debug)]
struct TestRelay {
    path: PathBuf,
    position: Position,
    on_failure: Position,
    beats: u64,
}

impl TestRelay {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            // As a relay without power.
            position: Position::Block,
            on_failure: Position::Block,
            beats: 0,
        }
    }

    fn write(&self) -> io::Result<()> {
        let text = format!(
            "position {}\non_failure {}\nbeats {}\n",
            self.position.name(),
            self.on_failure.name(),
            self.beats
        );
        // Whoever reads sees all of it.
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, text)?;
        std::fs::rename(&beside, &self.path)
    }
}

impl BypassRelay for TestRelay {
    fn is_present(&self) -> bool {
        true
    }

    fn set(&mut self, position: Position) -> io::Result<()> {
        self.position = position;
        self.write()
    }

    fn arm(&mut self, on_failure: Position) -> io::Result<()> {
        self.on_failure = on_failure;
        self.write()
    }

    fn beat(&mut self) -> io::Result<()> {
        self.beats += 1;
        self.write()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_a_relay_nothing_can_be_promised() {
        let mut none = driver(&Relay::None);
        assert!(!none.is_present() && none.beat().is_ok());
        assert!(none.set(Position::Wire).is_err() && none.arm(Position::Wire).is_err());
    }

    #[test]
    fn the_test_driver_writes_down_what_it_is_told() {
        let path = std::env::temp_dir().join(format!("crem-relay-{}", std::process::id()));
        let mut relay = driver(&Relay::Test(path.clone()));
        relay.arm(OnFailure::Wire.into()).unwrap();
        relay.set(Position::Inline).unwrap();
        relay.beat().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "position inline\non_failure wire\nbeats 1\n");
        relay.set(Position::Wire).unwrap();
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .starts_with("position wire\n")
        );
        std::fs::remove_file(&path).unwrap();
        assert!(driver(&Relay::Test("/none/such".into())).beat().is_err());
    }
}
