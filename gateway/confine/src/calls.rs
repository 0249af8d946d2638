//! System calls that no process of the gateway needs: each is refused with EPERM, for every thread. A list of
//! what is refused rather than of what is allowed, since drivers and the C library differ in what they call.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Which system calls a process keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// What a process needs that has sockets and files.
    Sockets,
    /// What one needs that has devices besides: loading of BPF programs, device ports.
    Devices,
}

/// Refused to all.
const REFUSED: &[i64] = &[
    // Other programs, other processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_personality,
    // Parts of the kernel with a history of holes.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_vhangup,
];

/// Refused to those without devices.
const OF_DEVICES: &[i64] = &[
    libc::SYS_bpf,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
];

/// Namespaces that a new task could get.
const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

impl Calls {
    fn refused(self) -> impl Iterator<Item = i64> {
        let more = match self {
            Self::Sockets => OF_DEVICES,
            Self::Devices => &[],
        };
        REFUSED.iter().chain(more).copied()
    }

    /// Puts the filters in force for all threads.
    pub(crate) fn restrict(self) -> Result<(), String> {
        let refused: BTreeMap<i64, Vec<SeccompRule>> = self
            .refused()
            .map(|call| (call, Vec::new()))
            .chain([(libc::SYS_clone, clone_rules()?)])
            .collect();
        // A filter cannot see the arguments of clone3; told that there is none, the C library uses clone.
        let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        for (calls, errno) in [(refused, libc::EPERM), (absent, libc::ENOSYS)] {
            let program = program(calls, errno)?;
            seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// New tasks are threads and processes, not namespaces.
fn clone_rules() -> Result<Vec<SeccompRule>, String> {
    let of = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        let masked = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, masked, flag)?;
        SeccompRule::new(vec![condition])
    };
    let rules: Result<_, seccompiler::BackendError> = NEW_NAMESPACES.map(of).into_iter().collect();
    rules.map_err(|e| e.to_string())
}

fn program(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Result<BpfProgram, String> {
    let target = std::env::consts::ARCH.try_into();
    let filter = SeccompFilter::new(
        calls,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        target.map_err(|e: seccompiler::BackendError| e.to_string())?,
    );
    let compiled = filter.and_then(TryInto::try_into);
    compiled.map_err(|e: seccompiler::BackendError| e.to_string())
}
