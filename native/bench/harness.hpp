// What every measurement between two CPUs needs here: two pinned threads in a short SCHED_FIFO burst that ends by
// itself, a probe that tells how far apart the CPUs are before and after, and samples that know what disturbed them.
//
// Virtual CPUs are moved by their host, within and between runs: a line that goes there and back in 60 to 250 ns
// (near) takes two to eight times as long from another part of the machine (far). A sample is labelled by its probes
// when it is read (bench/queues.py); one whose probes differ is dropped.

#pragma once

#include "hwtune/affinity.hpp"
#include "hwtune/clock.hpp"
#include "hwtune/poll.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace bench {

using hwtune::cpu_pause;
using Counter = hwtune::HardwareCounter;

[[noreturn]] inline void die(const std::string &why) {
    std::fprintf(stderr, "queue_bench: %s\n", why.c_str());
    std::_Exit(3);
}

// Ticks a nanosecond, measured once.
inline double ns_per_tick() {
    static const double value = [] {
        const hwtune::Clock clock = hwtune::make_clock();
        if (clock.source == hwtune::Source::monotonic_raw) {
            die("no trusted counter here: " + clock.why);
        }
        return clock.ns_per_tick;
    }();
    return value;
}
inline std::uint64_t ticks(double ns) { return static_cast<std::uint64_t>(ns / ns_per_tick()); }

// The watchdog inside every waiting loop: nothing may hang under SCHED_FIFO, where nothing else would run to end it.
class Watch {
  public:
    explicit Watch(std::uint64_t deadline) noexcept : deadline_(deadline) {}
    // An empty or full queue: pauses. False once the time is over.
    [[nodiscard]] bool empty() noexcept {
        poll_.empty();
        return alive();
    }
    [[nodiscard]] bool full() noexcept {
        cpu_pause();
        return alive();
    }
    void found() noexcept { poll_.found(); }

  private:
    [[nodiscard]] bool alive() noexcept { return (++misses_ & 255U) != 0 || Counter::read() < deadline_; }

    std::uint64_t deadline_;
    std::uint64_t misses_ = 0;
    hwtune::Poll poll_;
};

inline constexpr double burst_ns = 25e6;    // of the measurement itself
inline constexpr double patience_ns = 150e6; // before a loop gives up

// SCHED_FIFO for as long as it lives, where it is allowed.
class Fifo {
  public:
    Fifo() noexcept {
        sched_param priority{};
        priority.sched_priority = 1;
        active_ = allowed().load() && sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
        if (!active_) {
            allowed() = false;
        }
    }
    Fifo(const Fifo &) = delete;
    Fifo &operator=(const Fifo &) = delete;
    ~Fifo() {
        const sched_param none{};
        if (active_) {
            sched_setscheduler(0, SCHED_OTHER, &none);
        }
    }
    static std::atomic<bool> &allowed() {
        static std::atomic<bool> value{true};
        return value;
    }

  private:
    bool active_ = false;
};

inline std::int64_t preemptions() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

// Where the two sides meet, and the line that the probe sends to and fro. Lies in shared memory for two processes.
struct Meeting {
    alignas(128) std::atomic<std::uint64_t> line{0};
    alignas(128) std::atomic<std::uint32_t> arrived{0};
    alignas(128) std::atomic<std::int64_t> other_preemptions{0};
};

inline void meet(Meeting &meeting, std::uint32_t until) {
    meeting.arrived.fetch_add(1);
    const std::uint64_t deadline = Counter::read() + ticks(2e9);
    while (meeting.arrived.load() < until) {
        if (Counter::read() > deadline) {
            die("the other side did not come");
        }
        cpu_pause();
    }
}

inline constexpr int probe_chunks = 48;
inline constexpr int probe_trips = 32;

// The median time of a line there and back, in nanoseconds, on the first side; the other runs probe_echo.
inline double probe(Meeting &meeting, std::uint64_t from) {
    std::vector<double> chunks;
    std::uint64_t next = from;
    for (int chunk = 0; chunk < probe_chunks; ++chunk) {
        const std::uint64_t begin = Counter::read();
        for (int trip = 0; trip < probe_trips; ++trip) {
            meeting.line.store(++next, std::memory_order_release);
            ++next;
            const std::uint64_t deadline = Counter::read() + ticks(patience_ns);
            for (std::uint64_t misses = 1; meeting.line.load(std::memory_order_acquire) != next; ++misses) {
                cpu_pause();
                if (misses % 1024 == 0 && Counter::read() > deadline) {
                    die("the probe got no answer");
                }
            }
        }
        chunks.push_back(static_cast<double>(Counter::read() - begin) * ns_per_tick() / probe_trips);
    }
    std::nth_element(chunks.begin(), chunks.begin() + probe_chunks / 2, chunks.end());
    return chunks[probe_chunks / 2];
}
inline void probe_echo(Meeting &meeting, std::uint64_t from) {
    std::uint64_t next = from;
    const std::uint64_t deadline = Counter::read() + ticks(patience_ns);
    for (int trip = 0; trip < probe_chunks * probe_trips; ++trip) {
        ++next;
        for (std::uint64_t misses = 1; meeting.line.load(std::memory_order_acquire) != next; ++misses) {
            cpu_pause();
            if (misses % 1024 == 0 && Counter::read() > deadline) {
                die("the probe was not called");
            }
        }
        meeting.line.store(++next, std::memory_order_release);
    }
}
inline constexpr std::uint64_t probe_steps = 2ULL * probe_chunks * probe_trips;

struct Sample {
    double value = 0.0; // ns: a message, a trip, a pair
    double p99 = 0.0;   // ns, where it is of single trips
    double before_ns = 0.0;
    double after_ns = 0.0;
    std::int64_t preempted = 0; // of both sides
    std::uint64_t count = 0;
    bool complete = true; // no loop gave up
};

// One side of a burst: meets the other, probes, does its part, probes again.
template <class Part> void first_side(Meeting &meeting, Sample &sample, Part &&part) {
    meet(meeting, 2);
    const Fifo fifo;
    const std::int64_t before = preemptions();
    sample.before_ns = probe(meeting, 0);
    part();
    meet(meeting, 4);
    sample.after_ns = probe(meeting, probe_steps);
    meet(meeting, 6);
    sample.preempted = preemptions() - before + meeting.other_preemptions.load();
}
template <class Part> void second_side(Meeting &meeting, Part &&part) {
    meet(meeting, 2);
    const Fifo fifo;
    const std::int64_t before = preemptions();
    probe_echo(meeting, 0);
    part();
    meet(meeting, 4);
    probe_echo(meeting, probe_steps);
    meeting.other_preemptions = preemptions() - before;
    meet(meeting, 6);
}

struct Cpus {
    int first = 0;
    int second = 1;
};

// Both sides as threads of this process, `first` on the calling one (which is pinned to cpus.first already). Should a
// loop hang in spite of its watch, the timer ends the process.
template <class First, class Second> Sample burst(Cpus cpus, First &&first, Second &&second) {
    const itimerval limit{{0, 0}, {5, 0}};
    setitimer(ITIMER_REAL, &limit, nullptr);
    Sample sample;
    const auto meeting = std::make_unique<Meeting>();
    std::thread other([&] {
        const hwtune::Pinned pinned(cpus.second);
        second_side(*meeting, [&] { second(sample); });
    });
    first_side(*meeting, sample, [&] { first(sample); });
    other.join();
    const itimerval off{};
    setitimer(ITIMER_REAL, &off, nullptr);
    return sample;
}

// P50 and P99 of spans in ticks.
inline void percentiles(std::vector<std::uint64_t> &spans, Sample &sample) {
    sample.count = spans.size();
    if (spans.empty()) {
        sample.complete = false;
        return;
    }
    const auto at = [&](double share) {
        const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(spans.size() - 1));
        std::nth_element(spans.begin(), spans.begin() + rank, spans.end());
        return static_cast<double>(spans[static_cast<std::size_t>(rank)]) * ns_per_tick();
    };
    sample.value = at(0.5);
    sample.p99 = at(0.99);
}

} // namespace bench
