//! What a process gives up once it has what it needs: capabilities, rights by executing, dangerous system
//! calls, places to write. What each process needs is said by those who start it; that it forwards or answers
//! never depends on whether the kernel of this machine can take anything away.
//!
//! Capabilities and Landlock hold for the calling thread and those it starts afterwards, the filter of system
//! calls for every thread.
#![forbid(unsafe_code)]

mod calls;
mod places;

use std::path::PathBuf;

pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use crem_api::Confinement;

pub use calls::Calls;
pub use places::mounts_of;

/// What a process keeps.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Capabilities, of those it has.
    pub capabilities: Vec<Capability>,
    /// System calls.
    pub calls: Calls,
    /// It writes below these; those that do not exist are left out.
    pub writable: Vec<PathBuf>,
}

/// Nothing is given up, because nobody wants it.
pub fn unconfined() -> Confinement {
    let mut state = Confinement::default();
    seen(&mut state);
    state
}

/// Gives up capabilities but those named, and rights by executing, for this thread and those to come. The rest
/// follows with [`confine`].
pub fn narrow(capabilities: &[Capability]) -> Vec<String> {
    let mut problems = Vec::new();
    note(
        &mut problems,
        "no_new_privs",
        nix::sys::prctl::set_no_new_privs(),
    );
    note(&mut problems, "capabilities", keep_only(capabilities));
    problems
}

/// Gives up everything but what is named. What cannot be given up is told among the problems.
pub fn confine(keep: &Keep) -> Confinement {
    let mut problems = narrow(&keep.capabilities);
    let mut state = Confinement {
        enabled: true,
        ..Confinement::default()
    };
    match places::restrict(&keep.writable) {
        Ok(abi) => state.landlock_abi = abi,
        Err(why) => problems.push(format!("landlock: {why}")),
    }
    if state.landlock_abi > 0 {
        let paths = keep.writable.iter().filter(|path| path.exists());
        state.writable = paths.map(|path| path.display().to_string()).collect();
    }
    match keep.calls.restrict() {
        Ok(()) => state.system_calls_filtered = true,
        Err(why) => problems.push(format!("seccomp: {why}")),
    }
    state.problems = problems;
    seen(&mut state);
    state
}

fn note<E: std::fmt::Display>(problems: &mut Vec<String>, what: &str, done: Result<(), E>) {
    if let Err(error) = done {
        problems.push(format!("{what}: {error}"));
    }
}

fn keep_only(wanted: &[Capability]) -> Result<(), caps::errors::CapsError> {
    let has = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = wanted.iter().copied().filter(|c| has.contains(c)).collect();
    // What can never come back, also for root: only who may do so limits that.
    if has.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::read(None, CapSet::Bounding)? {
            if !keep.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    // What is effective has to be permitted.
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)
}

/// What the kernel says of the calling thread.
fn seen(state: &mut Confinement) {
    match caps::read(None, CapSet::Effective) {
        Ok(has) => {
            state.capabilities = has.iter().map(ToString::to_string).collect();
            state.capabilities.sort_unstable();
        }
        Err(error) => state.problems.push(format!("capabilities: {error}")),
    }
    state.no_new_privileges = nix::sys::prctl::get_no_new_privs().unwrap_or(false);
}

/// The state in a line for the log.
pub fn told(state: &Confinement) -> String {
    let word = |yes: bool| if yes { "yes" } else { "no" };
    let capabilities = if state.capabilities.is_empty() {
        "none".to_owned()
    } else {
        state.capabilities.join(" ")
    };
    let mut text = format!(
        "confined: {}; capabilities: {capabilities}; no new privileges: {}; system calls filtered: {}; \
         Landlock: {}",
        word(state.enabled),
        word(state.no_new_privileges),
        word(state.system_calls_filtered),
        match state.landlock_abi {
            0 => "none".to_owned(),
            abi => format!("ABI {abi}"),
        },
    );
    for problem in &state.problems {
        text.push_str("; not done: ");
        text.push_str(problem);
    }
    text
}

#[cfg(test)]
mod tests;
