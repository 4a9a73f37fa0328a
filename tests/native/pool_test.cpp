#include "hwtune/pool.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <stdexcept>

using hwtune::Pool;

namespace {

struct alignas(64) Row {
    std::array<float, 64> feature;
};

} // namespace

TEST_SUITE_BEGIN("pool");

TEST_CASE("every buffer is handed out once, aligned, zero and apart from the others") {
    Pool<Row> pool(5);
    std::set<Row *> seen;
    for (int i = 0; i < 5; ++i) {
        Row *row = pool.take();
        REQUIRE(row != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(row) % 64 == 0);
        CHECK(row->feature == std::array<float, 64>{});
        row->feature.fill(static_cast<float>(i) + 1.0F);
        seen.insert(row);
    }
    CHECK(seen.size() == 5);
    CHECK(pool.take() == nullptr);
    CHECK(pool.free_count() == 0);
    std::set<float> values;
    for (Row *row : seen) {
        CHECK(row->feature.front() == row->feature.back());
        values.insert(row->feature.front());
    }
    CHECK(values.size() == 5);
}

TEST_CASE("the last one given back is the next one taken") {
    Pool<Row> pool(3);
    Row *first = pool.take();
    Row *second = pool.take();
    REQUIRE(pool.give(first));
    REQUIRE(pool.give(second));
    CHECK(pool.take() == second);
    CHECK(pool.take() == first);
    CHECK(pool.free_count() == 1);
}

TEST_CASE("what isn't out can't come back") {
    Pool<Row> pool(2);
    Row *row = pool.take();
    const Row foreign{};
    CHECK_FALSE(pool.give(&foreign));
    CHECK_FALSE(pool.give(nullptr));
    CHECK_FALSE(pool.give(row + 1)); // never taken
    CHECK_FALSE(pool.give(row - 1)); // before the first
    CHECK_FALSE(pool.give(reinterpret_cast<Row *>(reinterpret_cast<std::uintptr_t>(row) + 64))); // the middle of one
    CHECK(pool.free_count() == 1);
    CHECK(pool.give(row));
    CHECK_FALSE(pool.give(row)); // twice
    CHECK(pool.free_count() == 2);
}

TEST_CASE("sizes that can't be") {
    CHECK_THROWS_AS(Pool<Row>(0), std::invalid_argument);
    CHECK_THROWS_AS(Pool<Row>(std::size_t{1} << 40U), std::invalid_argument);
}

TEST_CASE("on huge pages or not, it works") {
    Pool<Row> pool(2, hwtune::Backing::huge_pages);
    CHECK(pool.take() != nullptr);
    CHECK_FALSE(Pool<Row>(1).huge_pages());
}

TEST_SUITE_END();
