//! The files of the agent: its memory, and its status for whoever looks at the gateway itself. A file is replaced
//! whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crem_fleet::memory::Memory;
use serde::Serialize;

/// Writes a file; `flushed` it is there after a loss of power too.
pub(super) fn replace(path: &Path, value: &impl Serialize, flushed: bool) {
    if let Err(error) = try_replace(path, value, flushed) {
        tracing::error!("{}: {error}", path.display());
    }
}

fn try_replace(path: &Path, value: &impl Serialize, flushed: bool) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let mut file = File::create(&name)?;
    file.write_all(&serde_json::to_vec_pretty(value)?)?;
    file.write_all(b"\n")?;
    if flushed {
        file.sync_all()?;
    }
    fs::rename(&name, path)?;
    if flushed {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Reads the memory. One that cannot be read is as good as none: what it would have spared is at most another try.
pub(super) fn remember(path: &Path) -> Memory {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Memory::default(),
        Err(error) => {
            tracing::error!("{}: {error}", path.display());
            return Memory::default();
        }
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::error!("{}: {error}", path.display());
        Memory::default()
    })
}
