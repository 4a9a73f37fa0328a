// Pinning the calling thread to one CPU, and putting its affinity back.

#pragma once

#include <cerrno>
#include <cstddef>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace hwtune {

// A cpu_set_t as large as this kernel needs; the fixed one ends at CPU 1023.
class CpuSet {
  public:
    explicit CpuSet(std::size_t cpus = CPU_SETSIZE) : words_((cpus + bits - 1) / bits, 0) {}

    [[nodiscard]] static CpuSet only(int cpu) {
        CpuSet set(static_cast<std::size_t>(cpu) + 1);
        set.words_[static_cast<std::size_t>(cpu) / bits] |= 1UL << (static_cast<std::size_t>(cpu) % bits);
        return set;
    }

    // Affinity of the calling thread. The kernel says EINVAL while the set is smaller than its own.
    [[nodiscard]] static CpuSet of_this_thread() {
        for (std::size_t cpus = CPU_SETSIZE; cpus <= max_cpus; cpus *= 2) {
            CpuSet set(cpus);
            if (sched_getaffinity(0, set.bytes(), set.data()) == 0) {
                return set;
            }
            if (errno != EINVAL) {
                break;
            }
        }
        throw std::system_error(errno, std::generic_category(), "cannot read this thread's CPU affinity");
    }

    [[nodiscard]] bool apply() const noexcept { return sched_setaffinity(0, bytes(), data()) == 0; }

    // Equal as sets, whatever their sizes.
    [[nodiscard]] bool operator==(const CpuSet &other) const noexcept {
        const std::size_t longer = words_.size() > other.words_.size() ? words_.size() : other.words_.size();
        for (std::size_t i = 0; i < longer; ++i) {
            if (word(i) != other.word(i)) {
                return false;
            }
        }
        return true;
    }

    static constexpr std::size_t max_cpus = std::size_t{1} << 20U;

  private:
    static constexpr std::size_t bits = 8 * sizeof(unsigned long);

    [[nodiscard]] unsigned long word(std::size_t i) const noexcept { return i < words_.size() ? words_[i] : 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return words_.size() * sizeof(unsigned long); }
    [[nodiscard]] cpu_set_t *data() noexcept { return reinterpret_cast<cpu_set_t *>(words_.data()); }
    [[nodiscard]] const cpu_set_t *data() const noexcept { return reinterpret_cast<const cpu_set_t *>(words_.data()); }

    std::vector<unsigned long> words_; // cpu_set_t is an array of these (sched.h)
};

// Holds the calling thread on one CPU for as long as it lives. Throws std::invalid_argument for a number that
// can't be a CPU, std::system_error where the kernel refuses or puts the thread somewhere else.
class Pinned {
  public:
    explicit Pinned(int cpu) : before_(CpuSet::of_this_thread()) {
        if (cpu < 0 || static_cast<std::size_t>(cpu) >= CpuSet::max_cpus) {
            throw std::invalid_argument("there can be no CPU " + std::to_string(cpu));
        }
        if (!CpuSet::only(cpu).apply()) {
            const int error = errno;
            throw std::system_error(error, std::generic_category(),
                                    "cannot pin to CPU " + std::to_string(cpu) +
                                        (error == EINVAL ? " (it is offline, does not exist, or is outside this process's cpuset)"
                                                         : ""));
        }
        if (sched_getcpu() != cpu) {
            static_cast<void>(before_.apply());
            throw std::system_error(EAGAIN, std::generic_category(),
                                    "the kernel accepted a pin to CPU " + std::to_string(cpu) + " and did not follow it");
        }
    }
    Pinned(const Pinned &) = delete;
    Pinned &operator=(const Pinned &) = delete;
    ~Pinned() { static_cast<void>(restore()); }

    // Whether the affinity is again what it was. The kernel refuses if all those CPUs have left the cpuset.
    bool restore() noexcept {
        if (!restored_) {
            restored_ = before_.apply();
        }
        return restored_;
    }

  private:
    CpuSet before_;
    bool restored_ = false;
};

} // namespace hwtune
