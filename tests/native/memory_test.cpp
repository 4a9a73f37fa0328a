#include "hwtune/memory.hpp"
#include "hwtune/wakeup.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <system_error>
#include <vector>

using namespace hwtune;
using namespace std::chrono_literals;

namespace {
const std::atomic<bool> never{false};
} // namespace

TEST_SUITE_BEGIN("memory");

TEST_CASE("a chase comes by every line once and is back where it began") {
    std::vector<Line> lines(1000);
    one_cycle(lines, 7);
    std::set<std::uint64_t> seen;
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        seen.insert(at);
        at = chase(lines, at, 1);
    }
    CHECK(seen.size() == 1000);
    CHECK(at == 0);
    CHECK(chase(lines, 0, 1000) == 0);
    CHECK(chase(lines, 0, 999) != 0);
}

TEST_CASE("a stream reads all of it") {
    std::vector<Line> lines(3);
    lines[0].next = 1;
    lines[1].rest[6] = 20;
    lines[2].rest[0] = 300;
    CHECK(stream(lines) == 321);
}

TEST_CASE("a run measures, and leaves the thread where it was") {
    const CpuSet before = CpuSet::of_this_thread();
    const int cpu = sched_getcpu();
    const Clock clock = make_clock();
    const MemoryResult found = measure_memory({cpu, cpu, least_memory, 2ms, 1}, clock, never);
    CHECK(found.load_ns.size() > 0);
    CHECK(found.read_gbps.size() > 0);
    CHECK(found.nodes.size() == 256);
    CHECK_FALSE(found.stopped);
    for (const double ns : found.load_ns) {
        CHECK(ns > 0.0);
    }
    CHECK(CpuSet::of_this_thread() == before);
}

TEST_CASE("sizes and times that can't be, and a CPU that isn't there") {
    const Clock clock = make_clock();
    CHECK_THROWS_AS(static_cast<void>(measure_memory({0, 0, 0, 1ms, 1}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(measure_memory({0, 0, least_memory + 64, 1ms, 1}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(measure_memory({0, 0, least_memory, 0ms, 1}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(measure_memory({99999, 99999, least_memory, 1ms, 1}, clock, never)), std::system_error);
}

TEST_CASE("wake-ups over a clock of the test's own: lateness from when each was due, passed times left out") {
    std::uint64_t time = 1'000;
    const std::vector<std::uint64_t> late{5, 250, 0, 7}; // the second sleeps past two more
    std::size_t sleeps = 0;
    WakeupResult found;
    record_wakeups(
        found, 100, 6, [&] { return time; }, [&](std::uint64_t due) { time = due + late[sleeps++]; }, never);
    // due: 0, 100 (over 200 and 300), 400, 500
    CHECK(found.due_ns == std::vector<std::uint64_t>{0, 100, 400, 500});
    CHECK(found.late_ns == late);
    CHECK(found.missed == 2);
}

TEST_CASE("a delay beyond the end misses no more than there were") {
    std::uint64_t time = 0;
    WakeupResult found;
    record_wakeups(
        found, 100, 3, [&] { return time; }, [&](std::uint64_t due) { time = due + 10'000; }, never);
    CHECK(found.late_ns.size() == 1);
    CHECK(found.missed == 2);
}

TEST_CASE("real wake-ups are never early, and the flag ends them") {
    const WakeupResult found = wakeups({sched_getcpu(), 20ms, 1ms, 0}, never);
    CHECK(found.late_ns.size() + found.missed == 20);
    CHECK_FALSE(found.fifo);
    CHECK(found.affinity_restored);
    const std::atomic<bool> now{true};
    CHECK(wakeups({sched_getcpu(), 1h, 1ms, 0}, now).stopped);
    CHECK_THROWS_AS(static_cast<void>(wakeups({0, 1s, 1us, 0}, never)), std::invalid_argument);
}

TEST_SUITE_END();
