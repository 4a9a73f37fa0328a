// What a hot path may not do, seen from outside: allocations are counted, and a system call ends the process.

#pragma once

#include <cstddef>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

namespace hwtune_test {

// Through operator new, by any thread since the process began (main.cpp).
[[nodiscard]] std::size_t allocations() noexcept;

enum class Calls { none, some, cannot_tell };

// Runs `work` in a child that the kernel kills at its first system call other than read, write and exit (seccomp(2),
// strict mode).
template <class Work> [[nodiscard]] Calls system_calls(Work &&work) {
    constexpr int no_seccomp = 3;
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
            _exit(no_seccomp);
        }
        work();
        syscall(SYS_exit, 0); // exit_group, which _exit is, isn't among the three
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status) == no_seccomp)) {
        return Calls::cannot_tell;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Calls::none : Calls::some;
}

} // namespace hwtune_test
