//! Where a process may write, by Landlock. Reading stays with file permissions: a config document may name
//! files anywhere. Nothing may be executed.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};

/// The newest version whose rights are known here.
const KNOWN: ABI = ABI::V6;

/// Has this thread and those to come write below `writable` only. The version in force; 0 if the kernel has
/// none.
pub(crate) fn restrict(writable: &[PathBuf]) -> Result<u32, String> {
    let failed = |e: landlock::RulesetError| e.to_string();
    let write = AccessFs::from_write(KNOWN);
    let there = writable.iter().filter(|path| path.exists());
    let status = Ruleset::default()
        .handle_access(write | AccessFs::Execute)
        .and_then(Ruleset::create)
        .map_err(failed)?
        .add_rules(path_beneath_rules(there, write))
        .map_err(failed)?
        .restrict_self()
        .map_err(failed)?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => 0,
        (_, LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        _ => 0,
    })
}

/// Where file systems of a kind are mounted, such as `hugetlbfs`.
pub fn mounts_of(kind: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    of_kind(&mounts, kind)
}

fn of_kind(mounts: &str, kind: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (place, found) = (fields.next()?, fields.next()?);
        // The kernel writes a space as \040.
        (found == kind).then(|| Path::new(&place.replace("\\040", " ")).to_path_buf())
    };
    mounts.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_kind() {
        let mounts = "proc /proc proc rw 0 0\nnone /mnt/huge\\040pages hugetlbfs rw 0 0\nshort\n";
        assert_eq!(of_kind(mounts, "hugetlbfs"), [Path::new("/mnt/huge pages")]);
        assert!(of_kind(mounts, "tmpfs").is_empty());
    }
}
