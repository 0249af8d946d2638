//! State documents: what a process gave up once it had what it needs. Giving up is done elsewhere.

use serde::{Deserialize, Serialize};

/// What a process of the gateway can still do to the machine that it runs on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Confinement {
    /// Whether it was to give anything up; the bootstrap's `sandbox.mode` says so.
    pub enabled: bool,
    /// Capabilities that its threads have, by their kernel names.
    pub capabilities: Vec<String>,
    /// Whether executing a program can give it rights that it does not have.
    pub no_new_privileges: bool,
    /// Whether dangerous system calls are refused.
    pub system_calls_filtered: bool,
    /// Version of the kernel's Landlock that confines where it writes; 0 where none does.
    pub landlock_abi: u32,
    /// Below these it may write; without Landlock file permissions alone decide.
    pub writable: Vec<String>,
    /// What did not work, in words. The process goes on.
    pub problems: Vec<String>,
}
