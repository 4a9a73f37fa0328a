// How late a sleeping thread wakes: clock_nanosleep to an absolute time, as cyclictest does (rt-tests), pinned, and
// under SCHED_FIFO where the kernel allows it. What is late is the time from when it was due to when it ran.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <system_error>
#include <time.h>
#include <vector>

namespace hwtune {

struct WakeupPlan {
    int cpu = 0;
    std::chrono::nanoseconds duration{0};
    std::chrono::nanoseconds interval{0};
    int priority = 0; // of SCHED_FIFO; 0: leave the policy as it is
};

struct WakeupResult {
    int cpu = 0;
    bool fifo = false;
    int error = 0; // why it isn't, where it was asked for
    std::uint64_t missed = 0; // times that had passed before the thread slept again; they are not slept for
    bool stopped = false;
    bool affinity_restored = false;
    std::vector<std::uint64_t> due_ns; // since the first
    std::vector<std::uint64_t> late_ns;
};

// SCHED_FIFO for as long as it lives, for the calling thread.
class Fifo {
  public:
    explicit Fifo(int priority) {
        if (priority <= 0) {
            return;
        }
        sched_param wanted{};
        wanted.sched_priority = priority;
        error_ = pthread_getschedparam(pthread_self(), &policy_, &before_);
        if (error_ == 0) {
            error_ = pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted);
            set_ = error_ == 0;
        }
    }
    Fifo(const Fifo &) = delete;
    Fifo &operator=(const Fifo &) = delete;
    ~Fifo() {
        if (set_) {
            static_cast<void>(pthread_setschedparam(pthread_self(), policy_, &before_));
        }
    }
    [[nodiscard]] bool set() const noexcept { return set_; }
    [[nodiscard]] int error() const noexcept { return error_; }

  private:
    int policy_ = SCHED_OTHER;
    sched_param before_{};
    bool set_ = false;
    int error_ = 0;
};

// Sleeps until each time that is due, over any clock: `sleep_until(ns)` and `now()`. Times that have passed while the
// thread was late are counted and left out, as cyclictest does: they would tell of one delay again and again. Room is
// made beforehand.
template <class Now, class SleepUntil>
void record_wakeups(WakeupResult &result, std::uint64_t interval, std::size_t count, Now &&now, SleepUntil &&sleep_until,
                    const std::atomic<bool> &stop) {
    const std::uint64_t first = now() + interval;
    const std::uint64_t end = first + interval * count;
    for (std::uint64_t due = first; due < end;) {
        sleep_until(due);
        const std::uint64_t woke = now();
        result.due_ns.push_back(due - first);
        result.late_ns.push_back(woke > due ? woke - due : 0);
        due += interval;
        if (due <= woke) {
            const std::uint64_t passed = (woke - due) / interval + 1;
            result.missed += std::min(passed, due < end ? (end - due + interval - 1) / interval : 0);
            due += passed * interval;
        }
        if (stop.load(std::memory_order_relaxed)) {
            result.stopped = true;
            return;
        }
    }
}

inline constexpr std::size_t max_wakeups = std::size_t{1} << 24U;

// Throws std::invalid_argument for a plan that can't be, std::system_error where the CPU is refused.
[[nodiscard]] inline WakeupResult wakeups(const WakeupPlan &plan, const std::atomic<bool> &stop) {
    if (plan.interval < std::chrono::microseconds(20) || plan.duration < plan.interval ||
        plan.duration > std::chrono::hours(24)) {
        throw std::invalid_argument("the interval must be 20 us at least, and the duration from that to 24 hours");
    }
    const auto count = static_cast<std::size_t>(plan.duration / plan.interval);
    if (count > max_wakeups || plan.priority < 0 || plan.priority > 99) {
        throw std::invalid_argument("at most 16777216 wake-ups, at a priority from 0 to 99");
    }
    WakeupResult result;
    result.cpu = plan.cpu;
    result.due_ns.resize(count); // written to, so that its pages are there
    result.late_ns.resize(count);
    result.due_ns.clear();
    result.late_ns.clear();
    Pinned pinned(plan.cpu);
    const Fifo fifo(plan.priority);
    result.fifo = fifo.set();
    result.error = fifo.error();
    const auto sleep_until = [](std::uint64_t ns) {
        const timespec due{static_cast<time_t>(ns / 1'000'000'000U), static_cast<long>(ns % 1'000'000'000U)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
        }
    };
    record_wakeups(result, static_cast<std::uint64_t>(plan.interval.count()), count, [] { return MonotonicClock::read(); },
                   sleep_until, stop);
    result.affinity_restored = pinned.restore();
    return result;
}

} // namespace hwtune
