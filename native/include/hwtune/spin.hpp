// How quiet is one CPU: a loop that does nothing but read the clock, and keeps every gap between two readings
// that is longer than it should be. Whatever took the CPU away (interrupt, another task, SMI, hypervisor)
// shows as a gap; so does a slow clock read, hence the threshold a multiple of the loop's own step.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace hwtune {

struct Gap {
    std::uint64_t start = 0; // since the loop began
    std::uint64_t length = 0; // between two neighbouring readings, so one step of the loop is in it
};

struct Step {
    std::uint64_t min = 0; // smallest advance seen
    std::uint64_t median = 0; // 0 where the counter is coarser than the loop
};

inline constexpr std::size_t calibration_steps = 1U << 14U;
inline constexpr std::uint64_t threshold_multiple = 8;
inline constexpr std::size_t max_capacity = std::size_t{1} << 24U;
inline constexpr std::chrono::hours max_duration{24};

// The loop's own step, in ticks. Throws std::runtime_error if the counter stands still.
template <class Counter> [[nodiscard]] Step measure_step(Counter &counter, std::size_t count = calibration_steps) {
    std::vector<std::uint64_t> steps(count);
    std::uint64_t last = counter.read();
    for (std::uint64_t &step : steps) {
        const std::uint64_t now = counter.read();
        step = now >= last ? now - last : 0;
        last = now;
    }
    std::sort(steps.begin(), steps.end());
    const auto moved = std::upper_bound(steps.begin(), steps.end(), std::uint64_t{0});
    if (moved == steps.end()) {
        throw std::runtime_error("the clock does not move");
    }
    return {*moved, steps[count / 2]};
}

// Ticks above which a step is a gap: well clear of the loop itself, close enough to see a short interrupt.
[[nodiscard]] constexpr std::uint64_t threshold_for(Step step) noexcept {
    return threshold_multiple * std::max(step.min, step.median);
}

struct Recording {
    std::uint64_t duration = 0; // from the first reading to the last
    std::uint64_t iterations = 0;
    std::uint64_t gap_total = 0; // the lost ones too
    std::uint64_t longest = 0; // the lost ones too
    std::uint64_t lost = 0; // gaps seen after the buffer was full
    std::uint64_t backwards = 0; // readings earlier than the one before
    bool stopped = false;
    bool migrated = false; // seen on another CPU after a gap; a move always takes the thread off its CPU
    std::uint64_t begin = 0; // the first reading
    std::size_t kept = 0; // gaps written to the buffer
};

// The loop itself, in ticks of `counter`. Gaps go to `buffer`, whose pages the caller has touched, for nothing
// is allocated here. `elsewhere()` says whether the thread has left its CPU; it is asked after each gap.
template <class Counter, class Elsewhere>
[[nodiscard]] Recording record_gaps(Counter &counter, std::uint64_t duration, std::uint64_t threshold,
                                    std::span<Gap> buffer, const std::atomic<bool> &stop,
                                    Elsewhere &&elsewhere) {
    Recording seen;
    seen.begin = counter.read();
    std::uint64_t origin = seen.begin;
    std::uint64_t last = origin;
    while (last - origin < duration) {
        const std::uint64_t now = counter.read();
        ++seen.iterations;
        if (now < last) [[unlikely]] {
            ++seen.backwards;
            origin += now - last; // what has passed stays passed: the loop ends however far back it went
            last = now;
            continue;
        }
        const std::uint64_t step = now - last;
        if (step > threshold) [[unlikely]] {
            if (seen.kept < buffer.size()) {
                buffer[seen.kept++] = {last - origin, step};
            } else {
                ++seen.lost;
            }
            seen.gap_total += step;
            seen.longest = std::max(seen.longest, step);
            seen.migrated = seen.migrated || elsewhere();
        }
        last = now;
        if (stop.load(std::memory_order_relaxed)) [[unlikely]] {
            seen.stopped = true;
            break;
        }
    }
    seen.duration = last - origin;
    return seen;
}

struct SpinPlan {
    int cpu = 0;
    std::chrono::nanoseconds duration{0};
    std::uint64_t threshold_ns = 0; // 0: from the loop itself
    std::size_t capacity = 1U << 16U;
};

// Nanoseconds are rounded down, so that sums of parts never exceed the whole.
struct SpinResult {
    int cpu = 0;
    std::uint64_t started_ns = 0; // CLOCK_MONOTONIC at the loop's first reading
    std::uint64_t started_ticks = 0; // that reading itself: what a trace by the same counter is compared with
    std::uint64_t duration_ns = 0;
    std::uint64_t threshold_ns = 0;
    double step_min_ns = 0.0;
    double step_median_ns = 0.0;
    std::uint64_t iterations = 0;
    std::uint64_t gap_ns = 0; // time inside gaps, the lost ones too
    std::uint64_t longest_ns = 0;
    std::uint64_t lost = 0;
    std::uint64_t backwards = 0;
    std::int64_t voluntary_switches = 0; // of this thread during the loop (getrusage)
    std::int64_t involuntary_switches = 0;
    std::int64_t minor_faults = 0;
    std::int64_t major_faults = 0;
    bool stopped = false;
    bool migrated = false;
    bool affinity_restored = false;
    std::vector<std::uint64_t> gap_starts_ns;
    std::vector<std::uint64_t> gap_lengths_ns;
};

namespace detail {

[[nodiscard]] inline rusage thread_usage() {
    rusage usage{};
    if (getrusage(RUSAGE_THREAD, &usage) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot read this thread's resource usage");
    }
    return usage;
}

inline void check(const SpinPlan &plan) {
    if (plan.duration <= std::chrono::nanoseconds::zero() || plan.duration > max_duration) {
        throw std::invalid_argument("the duration must be above 0 and at most 24 hours");
    }
    if (plan.capacity == 0 || plan.capacity > max_capacity) {
        throw std::invalid_argument("the capacity must be from 1 to " + std::to_string(max_capacity) + " gaps");
    }
}

} // namespace detail

// Pins the calling thread to plan.cpu, spins for plan.duration, and gives the thread its affinity back.
// Throws std::invalid_argument for a plan that can't be, std::system_error where the CPU is refused.
[[nodiscard]] inline SpinResult spin(const SpinPlan &plan, const Clock &clock, const std::atomic<bool> &stop) {
    detail::check(plan);
    Pinned pinned(plan.cpu);
    return clock.with_counter([&](auto &counter) {
        const auto ticks = [&](double ns) { return static_cast<std::uint64_t>(std::ceil(ns / clock.ns_per_tick)); };
        const auto whole_ns = [&](std::uint64_t span) { return static_cast<std::uint64_t>(clock.ns(span)); };

        const Step step = measure_step(counter);
        const std::uint64_t threshold =
            plan.threshold_ns == 0 ? threshold_for(step) : ticks(static_cast<double>(plan.threshold_ns));
        std::vector<Gap> buffer(plan.capacity); // written to, so its pages are there before the loop begins
        MonotonicClock monotonic;
        const Pair origin = tightest_pair(counter, monotonic);
        const rusage before = detail::thread_usage();
        const Recording seen =
            record_gaps(counter, ticks(static_cast<double>(plan.duration.count())), threshold, buffer, stop,
                        [&] { return sched_getcpu() != plan.cpu; });
        const rusage after = detail::thread_usage();

        SpinResult result;
        result.cpu = plan.cpu;
        result.started_ns = origin.reference_ns + whole_ns(seen.begin - origin.before);
        result.started_ticks = seen.begin;
        result.duration_ns = whole_ns(seen.duration);
        result.threshold_ns = whole_ns(threshold);
        result.step_min_ns = clock.ns(step.min);
        result.step_median_ns = clock.ns(step.median);
        result.iterations = seen.iterations;
        result.gap_ns = whole_ns(seen.gap_total);
        result.longest_ns = whole_ns(seen.longest);
        result.lost = seen.lost;
        result.backwards = seen.backwards;
        result.voluntary_switches = after.ru_nvcsw - before.ru_nvcsw;
        result.involuntary_switches = after.ru_nivcsw - before.ru_nivcsw;
        result.minor_faults = after.ru_minflt - before.ru_minflt;
        result.major_faults = after.ru_majflt - before.ru_majflt;
        result.stopped = seen.stopped;
        result.migrated = seen.migrated || sched_getcpu() != plan.cpu || !(CpuSet::of_this_thread() == CpuSet::only(plan.cpu));
        result.gap_starts_ns.reserve(seen.kept);
        result.gap_lengths_ns.reserve(seen.kept);
        for (const Gap &gap : std::span(buffer).first(seen.kept)) {
            result.gap_starts_ns.push_back(whole_ns(gap.start));
            result.gap_lengths_ns.push_back(whole_ns(gap.length));
        }
        result.affinity_restored = pinned.restore();
        return result;
    });
}

} // namespace hwtune
