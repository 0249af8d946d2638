//! A line as RFC 5424 writes it. No socket, no clock.

use std::fmt::Write;

use crem_api::SyslogLevel;

/// Octets of a datagram at most (RFC 5426 section 3.2: receivers should take so many).
pub const DATAGRAM: usize = 2048;
/// Octets of a message over a stream at most.
pub const STREAM: usize = 8192;
/// Fields of a line at most, and octets of the value of one.
const MAX_FIELDS: usize = 32;
const MAX_VALUE: usize = 512;
/// The name of our structured data; the number is the one for documentation, as we have none.
const ELEMENT: &str = "crem@32473";

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// How much it matters.
    pub level: SyslogLevel,
    /// Kind of event, or the part of the program.
    pub id: String,
    /// The text.
    pub text: String,
    /// Names with values.
    pub fields: Vec<(&'static str, String)>,
}

/// Name of this machine for messages.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    printable(name.trim(), 255)
}

impl Line {
    /// The message, at most so many octets.
    pub fn written(&self, facility: u8, host: &str, most: usize) -> Vec<u8> {
        let severity = match self.level {
            SyslogLevel::Error => 3,
            SyslogLevel::Warning => 4,
            SyslogLevel::Info => 6,
        };
        let mut text = format!(
            "<{}>1 {} {host} crem-gateway {} {} ",
            u32::from(facility) * 8 + severity,
            timestamp(self.at_ms),
            std::process::id(),
            printable(&self.id, 32),
        );
        self.write_fields(&mut text);
        text.push(' ');
        // A mark that says that it is UTF-8 (section 6.4), and one line.
        text.push('\u{feff}');
        text.extend(
            self.text
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c }),
        );
        cut(&mut text, most);
        text.into_bytes()
    }

    fn write_fields(&self, text: &mut String) {
        if self.fields.is_empty() {
            text.push('-');
            return;
        }
        text.push('[');
        text.push_str(ELEMENT);
        for (name, value) in self.fields.iter().take(MAX_FIELDS) {
            let mut value = value.clone();
            cut(&mut value, MAX_VALUE);
            // Writing to a string does not fail.
            let _ = write!(text, " {}=\"", printable(name, 32));
            for c in value.chars() {
                if matches!(c, '"' | '\\' | ']') {
                    text.push('\\');
                }
                text.push(if c.is_control() { ' ' } else { c });
            }
            text.push('"');
        }
        text.push(']');
    }
}

/// As the header takes it: no space, nothing but ASCII, `-` for nothing.
fn printable(text: &str, most: usize) -> String {
    let legal = |c: &char| c.is_ascii_graphic() && !matches!(c, '=' | ']' | '"');
    let text: String = text.chars().filter(legal).take(most).collect();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// RFC 3339 in UTC, with milliseconds.
fn timestamp(at_ms: u64) -> String {
    let (seconds, ms) = (at_ms / 1000, at_ms % 1000);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Gregorian date of a day since 1970, by counting years of 400 years that begin in March, so that the leap day
/// is the last of each.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year_of_era + later, month, day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn line(text: &str, fields: &[(&'static str, &str)]) -> Line {
        Line {
            at_ms: 1_709_210_096_007,
            level: SyslogLevel::Warning,
            id: "link_down".to_owned(),
            text: text.to_owned(),
            fields: fields.iter().map(|(n, v)| (*n, (*v).to_owned())).collect(),
        }
    }

    #[test]
    fn a_message_has_the_form_of_rfc_5424() {
        let line = line(
            "mgmt0:\nthe link is down.",
            &[("revision", "7"), ("why", "a \"b\" ]\\")],
        );
        let written = String::from_utf8(line.written(16, "gw-a", DATAGRAM)).unwrap();
        let expected = format!(
            "<132>1 2024-02-29T12:34:56.007Z gw-a crem-gateway {} link_down \
             [crem@32473 revision=\"7\" why=\"a \\\"b\\\" \\]\\\\\"] \u{feff}mgmt0: the link is down.",
            std::process::id()
        );
        assert_eq!(written, expected);
    }

    #[test]
    fn nothing_is_a_hyphen_and_long_text_is_cut_between_characters() {
        let mut long = line(&"ü".repeat(3000), &[]);
        long.id = String::new();
        let written = long.written(0, &printable("", 9), DATAGRAM);
        assert!(written.len() <= DATAGRAM && written.len() > DATAGRAM - 2);
        let text = String::from_utf8(written).unwrap();
        assert!(
            text.starts_with("<4>1 2024-02-29T12:34:56.007Z - crem-gateway "),
            "{text}"
        );
        assert!(text.contains(" - - \u{feff}ü"), "{text}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(timestamp(seconds * 1000), expected);
        }
    }
}
