#include "hwtune/clock.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

using namespace hwtune;

namespace {

// A world whose time a test decides: each reading takes `read_ns`, and the counter runs at `ghz` in steps.
struct World {
    double now_ns = 1'000'000.0;
    double ticks = 5'000.0;
    double ghz = 2.0;
    double read_ns = 10.0;
    std::uint64_t granularity = 1;

    void pass(double ns) {
        now_ns += ns;
        ticks += ns * ghz;
    }
};

struct FakeCounter {
    World &world;
    std::uint64_t read() {
        world.pass(world.read_ns);
        const auto exact = static_cast<std::uint64_t>(world.ticks);
        return exact - exact % world.granularity;
    }
    std::uint64_t read_ordered() { return read(); }
};

struct FakeReference {
    World &world;
    std::uint64_t read() {
        world.pass(world.read_ns);
        return static_cast<std::uint64_t>(world.now_ns);
    }
};

} // namespace

TEST_SUITE_BEGIN("clock");

TEST_CASE("only a constant counter that the kernel uses itself is trusted") {
    const std::optional<std::string> tsc = "tsc";
    CHECK(judge(true, "tsc", tsc).trusted);

    const Trust varying = judge(false, "tsc", tsc);
    CHECK_FALSE(varying.trusted);
    CHECK(varying.why.find("constant rate") != std::string::npos);

    const Trust other = judge(true, "tsc", std::optional<std::string>("hpet"));
    CHECK_FALSE(other.trusted);
    CHECK(other.why.find("hpet") != std::string::npos);

    const Trust unread = judge(true, "tsc", std::nullopt);
    CHECK_FALSE(unread.trusted);
    CHECK(unread.why.find("could not be read") != std::string::npos);

    CHECK_FALSE(judge(true, "", tsc).trusted);
}

TEST_CASE("calibration finds a known rate within the error that it states") {
    for (const double ghz : {0.025, 1.0, 2.445, 5.7}) {
        World world;
        world.ghz = ghz;
        FakeCounter counter{world};
        FakeReference reference{world};
        const Calibration found = calibrate(counter, reference, 1, [&] { world.pass(10e6); });
        CAPTURE(ghz);
        CHECK(found.steady);
        const double off_ppm = std::abs(found.ns_per_tick * ghz - 1.0) * 1e6;
        CHECK(off_ppm <= found.error_ppm);
        CHECK(found.error_ppm < 20.0 + 5.0 / ghz); // some tens of ns, and two ticks, over 20 ms
    }
}

TEST_CASE("a counter that moves in coarse steps is calibrated within its error too") {
    World world;
    world.ghz = 3.0;
    world.granularity = 120; // 40 ns
    FakeCounter counter{world};
    FakeReference reference{world};
    const Cost cost = measure_cost(counter);
    CHECK(cost.step_ticks == 120);
    const Calibration found = calibrate(counter, reference, cost.step_ticks, [&] { world.pass(10e6); });
    CHECK(found.steady);
    CHECK(std::abs(found.ns_per_tick * 3.0 - 1.0) * 1e6 <= found.error_ppm);
}

TEST_CASE("a counter whose rate changes while it is calibrated is not steady") {
    World world;
    FakeCounter counter{world};
    FakeReference reference{world};
    int waits = 0;
    const Calibration found = calibrate(counter, reference, 1, [&] {
        if (++waits == 2) {
            world.ghz = 2.1;
        }
        world.pass(10e6);
    });
    CHECK_FALSE(found.steady);
}

TEST_CASE("a counter that stands still is not steady, and has no step") {
    World world;
    world.ghz = 0.0;
    FakeCounter counter{world};
    FakeReference reference{world};
    CHECK_FALSE(calibrate(counter, reference, 0, [&] { world.pass(10e6); }).steady);
    CHECK(measure_cost(counter).step_ticks == 0);
}

TEST_CASE("the tightest pair is the one that nothing interrupted") {
    World world;
    FakeCounter counter{world};
    int reads = 0;
    struct Interrupted {
        World &world;
        int &reads;
        std::uint64_t read() {
            world.pass(++reads == 5 ? 10.0 : 50'000.0);
            return static_cast<std::uint64_t>(world.now_ns);
        }
    } reference{world, reads};
    const Pair pair = tightest_pair(counter, reference, 16);
    CHECK(pair.width() == 40); // 10 ns in the reference and 10 ns in the counter, at 2 GHz
    CHECK(pair.middle() > static_cast<double>(pair.before));
}

TEST_CASE("the cost of a reading is what the world says it is") {
    World world;
    world.read_ns = 25.0;
    FakeCounter counter{world};
    const Cost cost = measure_cost(counter);
    CHECK(cost.cost_ticks == doctest::Approx(50.0));
    CHECK(cost.step_ticks == 50);
}

TEST_CASE("this machine's clock goes forward, has a price, and says why it is what it is") {
    const Clock clock = make_clock();
    CHECK_FALSE(clock.why.empty());
    CHECK(clock.ns_per_tick > 0.0);
    CHECK(clock.cost_ns > 0.0);
    CHECK(clock.step_ns > 0.0);
    CHECK(clock.error_ppm >= 0.0);
    const std::uint64_t first = clock.ticks();
    const std::uint64_t then = clock.ticks();
    CHECK(then >= first);
    CHECK(clock.ns(0) == 0.0);
}

TEST_CASE("without trust the clock is CLOCK_MONOTONIC_RAW, in nanoseconds") {
    const Clock clock = make_clock(std::optional<std::string>("hpet"));
    CHECK(clock.source == Source::monotonic_raw);
    CHECK(name(clock.source) == "monotonic_raw");
    CHECK(clock.ns_per_tick == 1.0);
    CHECK(clock.why.find("hpet") != std::string::npos);
    const std::uint64_t before = RawClock::read();
    const std::uint64_t ticks = clock.ticks();
    CHECK(ticks >= before);
    CHECK(RawClock::read() >= ticks);
}

TEST_SUITE_END();
