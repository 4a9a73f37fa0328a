// When ticks are due, and what they hold.

#include "hwtune/arrivals.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace hwtune;

namespace {

std::vector<std::uint64_t> first(std::size_t count, const ArrivalPlan &plan) {
    Schedule schedule(plan);
    std::vector<std::uint64_t> due(count);
    for (std::uint64_t &time : due) {
        time = schedule.next();
    }
    return due;
}

ArrivalPlan plan_of(Arrivals kind, double rate) {
    ArrivalPlan plan;
    plan.kind = kind;
    plan.rate = rate;
    return plan;
}

} // namespace

TEST_SUITE("arrivals") {
    TEST_CASE("a fixed rate is kept to the nanosecond, however long it lasts") {
        CHECK(first(4, plan_of(Arrivals::fixed, 1e6)) == std::vector<std::uint64_t>{0, 1000, 2000, 3000});
        CHECK(first(4, plan_of(Arrivals::fixed, 3e6)) == std::vector<std::uint64_t>{0, 333, 666, 1000});
        CHECK(first(3'000'001, plan_of(Arrivals::fixed, 3e6)).back() == 1'000'000'000);
    }

    TEST_CASE("a burst is due at one instant, and the mean rate is kept") {
        ArrivalPlan plan = plan_of(Arrivals::burst, 1e6);
        plan.burst_size = 3;
        CHECK(first(7, plan) == std::vector<std::uint64_t>{0, 0, 0, 3000, 3000, 3000, 6000});
    }

    TEST_CASE("Poisson arrivals have exponential gaps of the right mean") {
        const std::vector<std::uint64_t> due = first(100'001, plan_of(Arrivals::poisson, 1e6));
        // 100,000 gaps of mean and deviation 1,000 ns: their mean is within 4 standard errors of 3.16 ns
        CHECK(std::abs(static_cast<double>(due.back()) / 100'000 - 1000.0) < 13.0);
        std::size_t longer = 0;
        for (std::size_t i = 1; i < due.size(); ++i) {
            longer += due[i] - due[i - 1] > 2000 ? 1U : 0U;
        }
        // exp(-2) = 0.1353 of them are longer than twice the mean; the standard error is 0.0011
        CHECK(std::abs(static_cast<double>(longer) / 100'000 - std::exp(-2.0)) < 0.0045);
    }

    TEST_CASE("one seed gives one schedule and one market, another seed others") {
        ArrivalPlan plan = plan_of(Arrivals::poisson, 1e5);
        const std::vector<std::uint64_t> once = first(100, plan);
        CHECK(first(100, plan) == once);
        plan.seed = 2;
        CHECK(first(100, plan) != once);
    }

    TEST_CASE("a recording is played from its own first tick, and ends") {
        const std::array<RecordedTick, 3> ticks{{{500, 1, 2, 1, 1, 1, 1, 0}, {500, 1, 2, 1, 1, 1, 1, 0}, {750, 1, 2, 1, 1, 1, 1, 0}}};
        ArrivalPlan plan = plan_of(Arrivals::recorded, 0);
        plan.recorded = ticks;
        CHECK(first(4, plan) == std::vector<std::uint64_t>{0, 0, 250, no_more});
    }

    TEST_CASE("what can't be a schedule is refused") {
        CHECK_THROWS_AS(Schedule(plan_of(Arrivals::fixed, 0)), std::invalid_argument);
        CHECK_THROWS_AS(Schedule(plan_of(Arrivals::fixed, -1)), std::invalid_argument);
        CHECK_THROWS_AS(Schedule(plan_of(Arrivals::fixed, std::nan(""))), std::invalid_argument);
        CHECK_THROWS_AS(Schedule(plan_of(Arrivals::poisson, 1e10)), std::invalid_argument);
        const std::array<RecordedTick, 2> ticks{{{500, 1, 2, 1, 1, 1, 1, 0}, {499, 1, 2, 1, 1, 1, 1, 0}}};
        ArrivalPlan plan = plan_of(Arrivals::recorded, 0);
        plan.recorded = ticks;
        CHECK_THROWS_AS((Schedule(plan)), std::invalid_argument);
    }

    TEST_CASE("a synthetic market is one that could be: bid below ask, a trade at one of them, sizes above 0") {
        Market market(7);
        Tick tick{};
        for (int i = 0; i < 100'000; ++i) {
            market.next(tick);
            REQUIRE(tick.bid >= 1.0);
            REQUIRE(tick.ask > tick.bid);
            REQUIRE(tick.price == (tick.aggressor == 1 ? tick.ask : tick.bid));
            REQUIRE(tick.bid_size > 0);
            REQUIRE(tick.ask_size > 0);
            REQUIRE(tick.volume > 0);
        }
    }
}
