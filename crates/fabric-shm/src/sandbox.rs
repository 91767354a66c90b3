//! What sandboxes refuse, for tests of what happens then (feature `hostile`).

use std::io;

/// From now on the kernel refuses a userfaultfd to this thread, and to those that it starts, as sandboxes of
/// containers do: by a filter of system calls (seccomp(2)).
///
/// # Errors
/// If the kernel takes no filter.
pub fn refuse_userfaultfd() -> io::Result<()> {
    let statement = |code: u32, value: u32, (jump_if, jump_else): (u8, u8)| libc::sock_filter {
        code: code as u16,
        jt: jump_if,
        jf: jump_else,
        k: value,
    };
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        // The call's number is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (0, 0)),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_userfaultfd as u32, (0, 1)),
        statement(libc::BPF_RET | libc::BPF_K, refusal, (0, 0)),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, (0, 0)),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes numbers alone. It forbids this thread to gain rights by a program that it runs.
    let outcome = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the filter that it points to live through the call, which copies them.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::from_ref(&program), 0, 0)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
