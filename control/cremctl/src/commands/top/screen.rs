//! The terminal: a screen of its own while it is shown, keys without a line feed, and everything as before in the
//! end, however that comes. What is shown is made elsewhere.

use std::io::{self, Write};

use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

/// Another screen, without a cursor.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor and the screen from before.
const END: &str = "\x1b[?25h\x1b[?1049l";
/// To the first column of the first line.
const HOME: &str = "\x1b[H";
/// Nothing more to the right of a line, and below the last one.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// A terminal that is taken over until this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    before: Option<Termios>,
}

impl Screen {
    /// Takes the terminal over; none if the standard output is no terminal.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn take() -> io::Result<Option<Self>> {
        if !isatty(stdout()) {
            return Ok(None);
        }
        let before = tcgetattr(stdin()).ok();
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Signals stay: they end it like a key does.
            modes
                .local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(stdin(), OptionalActions::Now, &modes)?;
        }
        let screen = Self { before };
        write(BEGIN)?;
        Ok(Some(screen))
    }

    /// Columns and lines.
    pub(super) fn size() -> (usize, usize) {
        let size = tcgetwinsize(stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |s| (s.ws_col.into(), s.ws_row.into()))
    }

    /// Shows a text in place of what was there.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn show(&self, text: &str) -> io::Result<()> {
        let lines: Vec<&str> = text.lines().collect();
        let lines = lines.join(&format!("{REST_OF_LINE}\n"));
        write(&format!("{HOME}{lines}{REST_OF_LINE}{REST_OF_SCREEN}"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(END);
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Keys as they are pressed; none where the standard input is no terminal.
pub(super) fn keys() -> mpsc::Receiver<u8> {
    let (send, receive) = mpsc::channel(16);
    if isatty(stdin()) {
        // It ends with the process: nothing wakes a thread that reads.
        std::thread::spawn(move || {
            let mut key = [0];
            while matches!(rustix::io::read(stdin(), &mut key), Ok(1)) {
                if send.blocking_send(key[0]).is_err() {
                    return;
                }
            }
        });
    }
    receive
}
