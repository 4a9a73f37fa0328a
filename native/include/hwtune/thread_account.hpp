// What the kernel charges to one thread between two instants: page faults, context switches, migrations, and
// the processor's own counters where perf allows. Both instants are taken by the thread itself.

#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <linux/perf_event.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hwtune {

struct ThreadCounts {
    std::uint64_t minor_faults = 0;
    std::uint64_t major_faults = 0;
    std::uint64_t voluntary_switches = 0;
    std::uint64_t involuntary_switches = 0;
    std::optional<std::uint64_t> migrations{}; // needs CONFIG_SCHED_DEBUG
    std::vector<std::pair<std::string, std::uint64_t>> counters{};
    std::string counters_missing{}; // why there are none
};

// Made, begun and ended by the thread that it counts for; begin() and end() are the only system calls.
class ThreadAccount {
  public:
    ThreadAccount() {
        for (const Event &event : events) {
            perf_event_attr attr{};
            attr.size = sizeof attr;
            attr.type = PERF_TYPE_HARDWARE;
            attr.config = event.config;
            attr.exclude_hv = 1;
            // What a user may count at perf_event_paranoid 2; kernel time is told by the switches.
            attr.exclude_kernel = 1;
            const long descriptor = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
            if (descriptor < 0) { // some processors count only a part of these
                missing_ = why(errno);
                continue;
            }
            open_.push_back({event.name, static_cast<int>(descriptor), 0});
        }
    }
    ThreadAccount(const ThreadAccount &) = delete;
    ThreadAccount &operator=(const ThreadAccount &) = delete;
    ~ThreadAccount() { close(); }

    // getrusage is the last call here and the first in end(): nothing of the account lies between.
    void begin() {
        migrations_ = read_migrations();
        for (Counter &counter : open_) {
            counter.before = read_counter(counter.descriptor);
        }
        getrusage(RUSAGE_THREAD, &before_);
        begun_ = true;
    }

    [[nodiscard]] bool begun() const noexcept { return begun_; }

    [[nodiscard]] ThreadCounts end() {
        rusage after{};
        getrusage(RUSAGE_THREAD, &after);
        if (!begun_) {
            return {};
        }
        ThreadCounts counts;
        counts.minor_faults = since(after.ru_minflt, before_.ru_minflt);
        counts.major_faults = since(after.ru_majflt, before_.ru_majflt);
        counts.voluntary_switches = since(after.ru_nvcsw, before_.ru_nvcsw);
        counts.involuntary_switches = since(after.ru_nivcsw, before_.ru_nivcsw);
        for (const Counter &counter : open_) {
            counts.counters.emplace_back(counter.name, read_counter(counter.descriptor) - counter.before);
        }
        const std::optional<std::uint64_t> moved = read_migrations();
        if (moved && migrations_) {
            counts.migrations = *moved - *migrations_;
        }
        if (open_.empty()) {
            counts.counters_missing = missing_;
        }
        return counts;
    }

  private:
    struct Event {
        const char *name;
        std::uint64_t config;
    };
    struct Counter {
        const char *name;
        int descriptor;
        std::uint64_t before;
    };
    static constexpr std::array<Event, 4> events{{{"cycles", PERF_COUNT_HW_CPU_CYCLES},
                                                  {"instructions", PERF_COUNT_HW_INSTRUCTIONS},
                                                  {"cache-misses", PERF_COUNT_HW_CACHE_MISSES},
                                                  {"branch-misses", PERF_COUNT_HW_BRANCH_MISSES}}};

    [[nodiscard]] static std::uint64_t since(long after, long before) noexcept {
        return static_cast<std::uint64_t>(after - before);
    }

    [[nodiscard]] static std::uint64_t read_counter(int descriptor) noexcept {
        std::uint64_t value = 0;
        return ::read(descriptor, &value, sizeof value) == static_cast<ssize_t>(sizeof value) ? value : 0;
    }

    // /proc/thread-self/sched: "se.nr_migrations  :  3"
    [[nodiscard]] static std::optional<std::uint64_t> read_migrations() {
        std::ifstream file("/proc/thread-self/sched");
        std::string line;
        while (std::getline(file, line)) {
            if (line.starts_with("se.nr_migrations")) {
                const std::size_t colon = line.find(':');
                return colon == std::string::npos ? std::nullopt
                                                  : std::optional(std::strtoull(line.c_str() + colon + 1, nullptr, 10));
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] static std::string why(int error) {
        switch (error) {
        case ENOENT:
        case EOPNOTSUPP:
        case ENODEV:
            return "this machine offers no hardware counters (a guest without a virtual PMU)";
        case EACCES:
        case EPERM:
            return "perf is not allowed (kernel.perf_event_paranoid, or a container's seccomp filter)";
        case ENOSYS:
            return "this kernel has no perf events";
        default:
            return std::string("perf_event_open: ") + std::strerror(error);
        }
    }

    void close() noexcept {
        for (const Counter &counter : open_) {
            ::close(counter.descriptor);
        }
        open_.clear();
    }

    std::vector<Counter> open_;
    std::string missing_;
    std::optional<std::uint64_t> migrations_;
    rusage before_{};
    bool begun_ = false;
};

} // namespace hwtune
