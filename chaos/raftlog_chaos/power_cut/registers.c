/* Lets User-mode Linux run where the processor has more registers than the guest kernel knows (AMX).
 *
 * The host takes a program's extended state as a whole only; the guest kernel was built for a shorter one. So what it
 * sets is laid over what the host has. Preloaded into the guest kernel. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char whole[1 << 16] __attribute__((aligned(64)));

static long set_all(long pid, void *kind, const struct iovec *given) {
    struct iovec all = {whole, sizeof whole};
    long failed = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, kind, &all);
    if (failed || all.iov_len <= given->iov_len)
        return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, kind, given);
    memcpy(whole, given->iov_base, given->iov_len);
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, kind, &all);
}

long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    long pid = va_arg(rest, long);
    void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE)
        return set_all(pid, address, data);
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word;
        return syscall(SYS_ptrace, request, pid, address, &word) ? -1 : word;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
