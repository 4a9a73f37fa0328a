#include "hwtune/spin.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

using namespace hwtune;
using namespace std::chrono_literals;

namespace {

// Advances by 10 a reading, except where the script says otherwise (reading number -> advance).
struct ScriptedCounter {
    struct Turn {
        int reading;
        std::int64_t advance;
    };
    std::vector<Turn> script;
    std::uint64_t value = 1'000;
    int reading = 0;

    std::uint64_t read() {
        std::int64_t advance = 10;
        for (const Turn &turn : script) {
            if (turn.reading == reading) {
                advance = turn.advance;
            }
        }
        ++reading;
        value += static_cast<std::uint64_t>(advance);
        return value;
    }
};

const std::atomic<bool> never{false};

Recording record(ScriptedCounter &counter, std::uint64_t duration, std::vector<Gap> &buffer) {
    return record_gaps(counter, duration, 80, buffer, never, [] { return false; });
}

} // namespace

TEST_SUITE_BEGIN("spin");

TEST_CASE("a step is the loop's own: interruptions change neither its smallest nor its median") {
    ScriptedCounter counter{{{40, 5'000}, {90, 700}}};
    const Step step = measure_step(counter, 101);
    CHECK(step.min == 10);
    CHECK(step.median == 10);
    CHECK(threshold_for(step) == 80);
}

TEST_CASE("a counter coarser than the loop still gives a threshold above its steps") {
    struct Coarse {
        std::uint64_t reads = 0;
        std::uint64_t read() { return ++reads / 5 * 40; }
    } counter;
    const Step step = measure_step(counter, 1'000);
    CHECK(step.min == 40);
    CHECK(step.median == 0);
    CHECK(threshold_for(step) == 320);
}

TEST_CASE("a counter that stands still is an error, not a quiet CPU") {
    struct Still {
        std::uint64_t read() { return 7; }
    } counter;
    CHECK_THROWS_AS(static_cast<void>(measure_step(counter, 100)), std::runtime_error);
}

TEST_CASE("each gap is kept with its start and length; steps at the threshold are not gaps") {
    // Readings: 0 begins. 3 comes 500 after its neighbour, 5 comes exactly 80 after it, 7 comes 81 after it.
    ScriptedCounter counter{{{3, 500}, {5, 80}, {7, 81}}};
    std::vector<Gap> gaps(8);
    const Recording seen = record(counter, 1'000, gaps);
    REQUIRE(seen.kept == 2);
    CHECK(gaps[0].start == 20);
    CHECK(gaps[0].length == 500);
    CHECK(gaps[1].start == 20 + 500 + 10 + 80 + 10);
    CHECK(gaps[1].length == 81);
    CHECK(seen.gap_total == 581);
    CHECK(seen.longest == 500);
    CHECK(seen.lost == 0);
    // 661 in the three long steps; the 339 that are left take 34 short ones.
    CHECK(seen.iterations == 37);
    CHECK(seen.duration == 1'001);
    CHECK_FALSE(seen.stopped);
    CHECK_FALSE(seen.migrated);
}

TEST_CASE("gaps past the buffer are lost, counted, and still in the totals") {
    ScriptedCounter counter{{{2, 100}, {4, 200}, {6, 900}}};
    std::vector<Gap> gaps(2);
    const Recording seen = record(counter, 2'000, gaps);
    CHECK(seen.kept == 2);
    CHECK(seen.lost == 1);
    CHECK(seen.gap_total == 1'200);
    CHECK(seen.longest == 900);
}

TEST_CASE("a counter that goes back is counted, and the loop still ends") {
    ScriptedCounter counter{{{5, -900}}};
    std::vector<Gap> gaps(8);
    const Recording seen = record(counter, 200, gaps);
    CHECK(seen.backwards == 1);
    CHECK(seen.kept == 0);
    CHECK(seen.duration == 200);
}

TEST_CASE("a move to another CPU is told") {
    ScriptedCounter counter{{{5, 900}}};
    std::vector<Gap> gaps(4);
    const Recording seen = record_gaps(counter, 2'000, 80, gaps, never, [] { return true; });
    CHECK(seen.migrated);
    CHECK(seen.begin == 1'010);
}

TEST_CASE("a raised flag ends the loop") {
    ScriptedCounter counter;
    const std::atomic<bool> raised{true};
    std::vector<Gap> gaps(4);
    const Recording seen = record_gaps(counter, 1U << 30U, 80, gaps, raised, [] { return false; });
    CHECK(seen.stopped);
    CHECK(seen.iterations == 1);
}

TEST_CASE("plans that can't be carried out are refused before anything is pinned") {
    const Clock clock = raw_clock("test");
    const CpuSet before = CpuSet::of_this_thread();
    CHECK_THROWS_AS(static_cast<void>(spin({0, 0ns}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({0, -1ns}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({0, 25h}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({0, 1ms, 0, 0}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({0, 1ms, 0, max_capacity + 1}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({-1, 1ms}, clock, never)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(spin({(1 << 20) - 1, 1ms}, clock, never)), std::system_error);
    CHECK(CpuSet::of_this_thread() == before);
}

TEST_CASE("a real run holds together, on the best clock and on the plain one") {
    for (const Clock &clock : {make_clock(), raw_clock("test")}) {
        const CpuSet before = CpuSet::of_this_thread();
        const std::uint64_t earliest = MonotonicClock::read();
        const std::uint64_t earliest_tick = clock.ticks();
        const SpinResult seen = spin({sched_getcpu(), 20ms}, clock, never);
        CHECK(CpuSet::of_this_thread() == before);
        CHECK(seen.affinity_restored);
        CHECK_FALSE(seen.migrated);
        CHECK_FALSE(seen.stopped);
        CHECK(seen.backwards == 0);
        CHECK(seen.duration_ns >= 19'999'000);
        CHECK(seen.iterations > 0);
        CHECK(seen.threshold_ns > 0);
        CHECK(seen.started_ns > earliest);
        CHECK(seen.started_ns < MonotonicClock::read());
        CHECK(seen.started_ticks > earliest_tick);
        CHECK(clock.ns(clock.ticks() - seen.started_ticks) >= static_cast<double>(seen.duration_ns));
        CHECK(seen.gap_starts_ns.size() == seen.gap_lengths_ns.size());
        CHECK(seen.gap_ns <= seen.duration_ns);
        CHECK(seen.longest_ns <= seen.gap_ns);
        std::uint64_t end = 0;
        std::uint64_t inside = 0;
        for (std::size_t i = 0; i < seen.gap_starts_ns.size(); ++i) {
            CHECK(seen.gap_starts_ns[i] + 1 >= end); // rounding
            CHECK(seen.gap_lengths_ns[i] >= seen.threshold_ns);
            end = seen.gap_starts_ns[i] + seen.gap_lengths_ns[i];
            inside += seen.gap_lengths_ns[i];
        }
        CHECK(inside <= seen.gap_ns);
        CHECK(end <= seen.duration_ns + 1);
    }
}

TEST_CASE("threads spin side by side, and one flag stops them all") {
    const Clock clock = make_clock();
    std::atomic<bool> stop{false};
    const int cpu = sched_getcpu();
    std::vector<SpinResult> results(2);
    {
        std::vector<std::thread> threads;
        for (SpinResult &result : results) {
            threads.emplace_back([&] { result = spin({cpu, 1h, 0, 1'024}, clock, stop); });
        }
        std::this_thread::sleep_for(20ms);
        stop.store(true);
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    for (const SpinResult &result : results) {
        CHECK(result.stopped);
        CHECK(result.affinity_restored);
        CHECK(result.gap_ns <= result.duration_ns);
    }
}

TEST_SUITE_END();
