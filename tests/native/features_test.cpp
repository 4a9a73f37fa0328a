#include "hwtune/features.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

using namespace hwtune;
using doctest::Approx;

namespace {

using Row = std::array<double, feature_width>;

constexpr std::uint64_t half_life = 1U << 14U; // the first: 16,384 ns

// Goes the same way on every instruction set of this machine.
struct Window {
    std::vector<std::unique_ptr<FeatureWindow>> windows;
    Row row{};

    Window() {
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
            if (available(isa)) {
                windows.push_back(std::make_unique<FeatureWindow>(isa));
            }
        }
    }

    const Row &add(double price, std::uint32_t volume, std::uint32_t aggressor, std::uint64_t time_ns = 0) {
        return add({0, 0, 0, price - 1, price + 1, price, 0, 0, volume, aggressor}, time_ns);
    }
    const Row &add(const Tick &tick, std::uint64_t time_ns = 0) {
        windows[0]->update(tick, time_ns, row.data());
        for (std::size_t other = 1; other < windows.size(); ++other) {
            Row again{};
            windows[other]->update(tick, time_ns, again.data());
            for (std::size_t column = 0; column < feature_width; ++column) {
                REQUIRE(again[column] == Approx(row[column]).epsilon(1e-13));
            }
        }
        return row;
    }
};

} // namespace

TEST_SUITE_BEGIN("features");

TEST_CASE("a price is exact, and so is its distance from sums of prices times volumes") {
    using detail::ExactPrice;
    using detail::FeatureRecord;
    const auto sums = [](std::initializer_list<std::pair<double, std::int64_t>> trades) {
        FeatureRecord all;
        for (const auto &[price, volume] : trades) {
            const ExactPrice::Limbs limbs = ExactPrice::of(price).limbs(volume);
            all.exact += FeatureRecord::Exact{limbs.first, limbs.second, limbs.third, volume};
        }
        return all;
    };
    const auto distance = [](double price, const FeatureRecord &from) {
        return ExactPrice::of(price).distance(from.exact) * 0x1p-80;
    };
    const double largest = std::nextafter(0x1p36, 0.0);
    const double smallest = 0x1p-28;
    constexpr std::int64_t most = 0xffffffff;
    CHECK(distance(5.0, sums({{3.0, 7}})) == 14.0);
    CHECK(distance(-5.0, sums({{3.0, 7}})) == -56.0);
    CHECK(distance(0.1, sums({{0.1, most}, {0.1, 1}})) == 0.0);
    CHECK(distance(largest, sums({{largest, most}})) == 0.0);
    CHECK(distance(largest, sums({{-largest, most}})) == 2 * largest * static_cast<double>(most));
    CHECK(distance(smallest, sums({{0.0, 3}})) == 3 * smallest);
    CHECK(distance(0.0, sums({{smallest, 1}, {-smallest, 2}})) == smallest);
    const double next = std::nextafter(smallest, 1.0); // its last bit is the last that prices have
    CHECK(distance(smallest, sums({{next, 1}})) == smallest - next);
}

TEST_CASE("the first tick: no distance from its own VWAP, its own skew, and all the weight") {
    Window ticks;
    // a third of the way up from the bid: (1 - 2) / 3
    const Row &row = ticks.add({0, 0, 0, 99.0, 102.0, 100.0, 30, 10, 6, 1});
    for (std::size_t lane = 0; lane < 8; ++lane) {
        CHECK(row[lane] == 0.0);
        CHECK(row[8 + lane] == Approx(0.5));
        CHECK(row[16 + lane] == Approx(-1.0 / 3));
        CHECK(row[24 + lane] == Approx(1.0));
        CHECK(row[32 + lane] == Approx(1.0));
        CHECK(row[40 + lane] == Approx(6.5 / 7));
        CHECK(row[48 + lane] == Approx(30.5 / 41));
        CHECK(row[56 + lane] == Approx(5.0 / 12)); // a third, and the tick in the middle
    }
}

TEST_CASE("VWAP weighs prices by volume; its distance is in sqrt(W) basis points, clipped at 1") {
    Window ticks;
    ticks.add(100.0, 30, 0);
    const Row row = ticks.add(100.04, 10, 1);
    // VWAP 100.01: 0.03 of 100.04 is 2.9988 basis points
    CHECK(row[0] == 1.0); // clipped: sqrt(8) = 2.83
    CHECK(row[1] == Approx(0.03 / 100.04 * 1e4 / 4));
    CHECK(row[7] == Approx(0.03 / 100.04 * 1e4 / 32));
    CHECK(row[24] == Approx(-0.5));
    const Row down = ticks.add(90.0, 1, 1);
    CHECK(down[0] == -1.0);
}

TEST_CASE("a window forgets what left it, to the last bit, however large it was") {
    Window ticks;
    ticks.add({0, 0, 0, 6e10, 6.8e10, 6.8e10, 4'000'000'000, 0, 4'000'000'000, 1});
    for (int i = 0; i < 8; ++i) {
        ticks.add({0, 0, 0, 0.25, 0.75, 0.5, 5, 15, 7, 0});
    }
    CHECK(ticks.row[0] == 0.0); // W = 8: only equal prices are left
    CHECK(ticks.row[8] == Approx(-0.5));
    CHECK(ticks.row[16] == 0.0);
    CHECK(ticks.row[24] == Approx(-1.0));
    CHECK(ticks.row[1] == -1.0); // W = 16 still has it
    CHECK(ticks.row[9] > 0.99);
    for (int i = 0; i < 1016; ++i) {
        ticks.add({0, 0, 0, 0.25, 0.75, 0.5, 5, 15, 7, 0});
    }
    CHECK(ticks.row[7] == 0.0);
    CHECK(ticks.row[15] == Approx(-0.5));
    CHECK(ticks.row[23] == 0.0);
    CHECK(ticks.row[31] == Approx(-1.0));
}

TEST_CASE("weights halve with each half-life, wherever in a half-life the ticks lie") {
    for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{5'000}, half_life - 1, std::uint64_t{1} << 62U}) {
        Window ticks;
        ticks.add(100.0, 100, 1, start);
        const Row row = ticks.add(100.0, 4, 0, start + 2 * half_life);
        CHECK(row[32] == Approx(1.0 / 1.25));
        CHECK(row[33] == Approx(1.0 / (1 + std::exp2(-0.5)))); // the second is four times as long
        CHECK(row[40] == Approx(25.5 / 30));                   // a quarter of 100 bought, 4 sold, a lot of prior
    }
}

TEST_CASE("after a long silence only the newest tick counts") {
    for (const std::uint64_t silence : {std::uint64_t{1} << 40U, std::uint64_t{1} << 63U}) {
        Window ticks;
        ticks.add({0, 0, 0, 99.0, 101.0, 101.0, 1000, 0, 1'000'000, 1}, 77);
        const Row row = ticks.add({0, 0, 0, 99.0, 101.0, 99.0, 0, 0, 0, 0}, 77 + silence);
        for (std::size_t lane = 0; lane < 8; ++lane) {
            CHECK(row[32 + lane] == Approx(1.0));
            CHECK(row[40 + lane] == Approx(0.5));
            CHECK(row[48 + lane] == Approx(0.5));
            CHECK(row[56 + lane] == Approx(0.25));
        }
    }
}

TEST_CASE("time that goes back stands still") {
    Window ticks;
    ticks.add(100.0, 1, 1, 10 * half_life);
    CHECK(ticks.add(100.0, 1, 1, 3 * half_life)[32] == Approx(0.5));
    CHECK(ticks.add(100.0, 1, 1, 11 * half_life)[32] == Approx(0.5)); // 1 / (1 + 1/2 + 1/2)
}

TEST_CASE("a trade without a price has the last one and no volume") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    for (const double bad : {nan, inf, -inf, 0x1p36, -1e300}) {
        Window ticks;
        ticks.add(100.0, 10, 1);
        const Row row = ticks.add({0, 0, 0, 99.0, 101.0, bad, 1, 1, 1'000, 0});
        CHECK(row[0] == 0.0);
        CHECK(row[24] == Approx(1.0));
        CHECK(row[16] == 0.0); // at 100, the middle
        Window first;
        CHECK(first.add({0, 0, 0, -2.0, 2.0, bad, 1, 1, 1'000, 0})[24] == 0.0);
        CHECK(first.row[16] == 0.0); // at 0
    }
}

TEST_CASE("a market that is locked, crossed or has no quote has no skew; a trade beyond the quote is at its end") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto skew = [](double bid, double ask, double price) {
        Window ticks;
        return ticks.add({0, 0, 0, bid, ask, price, 1, 1, 1, 1})[16];
    };
    CHECK(skew(100, 100, 100) == 0.0);
    CHECK(skew(101, 100, 100) == 0.0);
    CHECK(skew(nan, 100, 100) == 0.0);
    CHECK(skew(100, nan, 100) == 0.0);
    CHECK(skew(-1e308, 1e308, 100) == 0.0);
    CHECK(skew(100, 104, 105) == 1.0);
    CHECK(skew(100, 104, 90) == -1.0);
    CHECK(skew(100, 104, 103) == 0.5);
}

TEST_CASE("prices may be negative or zero; VWAP's distance is then in basis points of their size") {
    Window ticks;
    ticks.add(-37.0, 1, 0);
    const Row row = ticks.add(-37.01, 1, 0);
    CHECK(row[3] == Approx(-0.005 / 37.01 * 1e4 / 8)); // W = 64
    CHECK(ticks.add(0.0, 1, 0)[3] == 0.0);
    CHECK(ticks.add(1e-9, 1, 0)[3] == 0.0); // nearer to 0 than 2^-28
}

TEST_CASE("the float row is the double row rounded once") {
    FeatureWindow narrow;
    FeatureWindow wide;
    std::array<float, feature_width> row{};
    Row values{};
    for (std::uint32_t i = 0; i < 3'000; ++i) {
        const double price = 100 + 0.01 * (i * 7919 % 13);
        const Tick tick{i, 0, 0, price - 0.01, price + 0.02, price, i * 31 % 97, i * 17 % 89, i * 13 % 101, i % 3 % 2};
        narrow.update(tick, std::uint64_t{i} * 4'321, row.data());
        wide.update(tick, std::uint64_t{i} * 4'321, values.data());
        for (std::size_t column = 0; column < feature_width; ++column) {
            REQUIRE(row[column] == static_cast<float>(values[column]));
        }
    }
}

TEST_SUITE_END();
