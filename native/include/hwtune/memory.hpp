// How far memory is: the latency of one load after the other (pointer chase) and what one thread reads a second
// (stream), from one CPU to pages that another CPU has touched first.
//
// First touch is how the kernel's default policy places pages (Linux Documentation/admin-guide/mm/numa_memory_policy.rst):
// on the node of the CPU that faults. Where they really are is asked of move_pages(2), not taken for granted.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"
#include "hwtune/random.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hwtune {

inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t least_memory = std::size_t{1} << 20U;
inline constexpr std::size_t most_memory = std::size_t{1} << 30U;
inline constexpr std::size_t chase_loads = std::size_t{1} << 12U; // timed together: some 400 us
inline constexpr std::size_t stream_piece = std::size_t{1} << 22U; // bytes timed together

struct alignas(line_bytes) Line {
    std::uint64_t next = 0;
    std::uint64_t rest[7] = {};
};
static_assert(sizeof(Line) == line_bytes);

// One cycle through all lines in random order (Sattolo 1986), so that no prefetcher knows the next one and none is
// left out. At most 2^32 lines.
inline void one_cycle(std::span<Line> lines, std::uint64_t seed) noexcept {
    Random random(seed);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        lines[i].next = i;
    }
    for (std::size_t i = lines.size() - 1; i > 0; --i) {
        std::swap(lines[i].next, lines[random.below(static_cast<std::uint32_t>(i))].next);
    }
}

[[nodiscard]] inline std::uint64_t chase(std::span<const Line> lines, std::uint64_t at, std::size_t loads) noexcept {
    for (std::size_t i = 0; i < loads; ++i) {
        at = lines[at].next;
    }
    return at;
}

// All of it is read: what a thread gets that streams through memory.
[[nodiscard]] inline std::uint64_t stream(std::span<const Line> lines) noexcept {
    std::uint64_t sum = 0;
    for (const Line &line : lines) {
        sum += line.next + line.rest[0] + line.rest[1] + line.rest[2] + line.rest[3] + line.rest[4] + line.rest[5] +
               line.rest[6];
    }
    return sum;
}

// Pages of their own, given back at the end. Throws std::system_error.
class Area {
  public:
    explicit Area(std::size_t bytes) : bytes_(bytes) {
        at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at_ == MAP_FAILED) {
            throw std::system_error(errno, std::generic_category(), "no memory to measure with");
        }
        // without huge pages most of the latency is the page walk's; where there are none it stays so
        static_cast<void>(madvise(at_, bytes, MADV_HUGEPAGE));
    }
    Area(const Area &) = delete;
    Area &operator=(const Area &) = delete;
    ~Area() { munmap(at_, bytes_); }

    [[nodiscard]] std::span<Line> lines() const noexcept { return {static_cast<Line *>(at_), bytes_ / line_bytes}; }

    // The node of one page in so many, -1 or less where the kernel cannot tell.
    [[nodiscard]] std::vector<int> nodes(std::size_t samples = 256) const {
        std::vector<void *> pages;
        for (std::size_t i = 0; i < samples; ++i) {
            pages.push_back(static_cast<std::byte *>(at_) + (bytes_ / samples * i & ~std::size_t{4095}));
        }
        std::vector<int> status(samples, -1);
        if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, status.data(), 0) != 0) {
            status.assign(samples, -1);
        }
        return status;
    }

  private:
    void *at_ = nullptr;
    std::size_t bytes_;
};

struct MemoryPlan {
    int cpu = 0; // that reads
    int home = 0; // that touches first
    std::size_t bytes = std::size_t{64} << 20U;
    std::chrono::nanoseconds duration{0}; // of each of the two measurements
    std::uint64_t seed = 1;
};

// Nanoseconds a load and bytes a nanosecond, of each piece that was timed; `nodes` of a sample of the pages.
struct MemoryResult {
    std::vector<double> load_ns;
    std::vector<double> read_gbps;
    std::vector<int> nodes;
    bool stopped = false;
};

// Throws std::invalid_argument for a plan that can't be, std::system_error where a CPU or memory is refused.
[[nodiscard]] inline MemoryResult measure_memory(const MemoryPlan &plan, const Clock &clock, const std::atomic<bool> &stop) {
    if (plan.bytes < least_memory || plan.bytes > most_memory || plan.bytes % least_memory != 0) {
        throw std::invalid_argument("the memory to measure with must be whole MiB, from 1 to 1024");
    }
    if (plan.duration <= std::chrono::nanoseconds::zero() || plan.duration > std::chrono::seconds(10)) {
        throw std::invalid_argument("the duration must be above 0 and at most 10 seconds");
    }
    const Area area(plan.bytes);
    const std::span<Line> lines = area.lines();
    {
        const Pinned pinned(plan.home);
        one_cycle(lines, plan.seed);
    }
    MemoryResult result;
    result.nodes = area.nodes();
    const Pinned pinned(plan.cpu);
    const double most = static_cast<double>(plan.duration.count()) / clock.ns_per_tick;
    clock.with_counter([&](auto &counter) {
        std::uint64_t at = 0;
        const std::uint64_t begin = counter.read_ordered();
        for (std::uint64_t last = begin; static_cast<double>(last - begin) < most && !result.stopped;) {
            at = chase(lines, at, chase_loads);
            asm volatile("" : "+r"(at)); // the next piece begins where this one ended
            const std::uint64_t now = counter.read_ordered();
            result.load_ns.push_back(clock.ns(now - last) / static_cast<double>(chase_loads));
            last = now;
            result.stopped = stop.load(std::memory_order_relaxed);
        }
        const std::size_t piece = std::min(lines.size(), stream_piece / line_bytes);
        std::size_t from = 0;
        const std::uint64_t second = counter.read_ordered();
        for (std::uint64_t last = second; static_cast<double>(last - second) < most && !result.stopped;) {
            std::uint64_t sum = stream(lines.subspan(from, piece));
            asm volatile("" : "+r"(sum));
            const std::uint64_t now = counter.read_ordered();
            result.read_gbps.push_back(static_cast<double>(piece * line_bytes) / clock.ns(now - last));
            last = now;
            from = from + 2 * piece <= lines.size() ? from + piece : 0;
            result.stopped = stop.load(std::memory_order_relaxed);
        }
    });
    return result;
}

} // namespace hwtune
