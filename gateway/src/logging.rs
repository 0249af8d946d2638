//! Where the log of a process goes: with its fields to journald if that started us, else as text to the standard
//! error; and to whoever wants the lines besides.

use std::io::IsTerminal;

use crem_api::Invalid;
use crem_control::syslog::layer::Forward;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins to log.
///
/// # Errors
/// The filter is none.
pub(crate) fn begin(filter: &str, forward: Option<Forward>) -> Result<(), Invalid> {
    let filter: EnvFilter = filter.parse().map_err(|e| {
        Invalid::whole(
            format!("logging.filter {filter:?}: {e}"),
            "a filter such as \"info\"",
        )
    })?;
    let journald = journald();
    let text = journald.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
    });
    tracing_subscriber::registry()
        .with(filter)
        .with(journald)
        .with(text)
        .with(forward)
        .init();
    Ok(())
}

/// The way to journald, if our standard error leads there anyway: fields get names such as `CREM_REVISION`.
fn journald() -> Option<tracing_journald::Layer> {
    use std::os::linux::fs::MetadataExt;
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    // Systemd tells device and inode, so that a program whose output goes elsewhere can see it.
    let own = std::fs::metadata("/proc/self/fd/2").ok()?;
    if stream != format!("{}:{}", own.st_dev(), own.st_ino()) {
        return None;
    }
    let layer = tracing_journald::layer().ok()?;
    let layer = layer.with_field_prefix(Some("CREM".to_owned()));
    Some(layer.with_syslog_identifier("crem-gateway".to_owned()))
}
