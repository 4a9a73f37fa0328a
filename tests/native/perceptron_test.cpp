#include "hwtune/perceptron.hpp"

#include "hot_path.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace hwtune;

namespace {

std::vector<Isa> isas() {
    std::vector<Isa> here;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (available(isa)) {
            here.push_back(isa);
        }
    }
    return here;
}

// Numbers from -1 to 1, with no pattern that a swapped row or column would keep.
std::vector<float> some_rows(std::size_t count) {
    std::vector<float> rows(count * feature_width);
    std::uint32_t state = 1;
    for (float &value : rows) {
        state = state * 1'664'525U + 1'013'904'223U;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
    return rows;
}

// The definition, in double.
double plain_score(const float *row) {
    std::vector<double> values(row, row + feature_width);
    for (std::size_t layer = 0; layer < perceptron::layers; ++layer) {
        std::vector<double> sums(perceptron::widths[layer + 1]);
        for (std::size_t output = 0; output < sums.size(); ++output) {
            sums[output] = perceptron::parameter(layer, values.size(), output);
            for (std::size_t input = 0; input < values.size(); ++input) {
                sums[output] += values[input] * perceptron::parameter(layer, input, output);
            }
            if (layer + 1 < perceptron::layers) {
                sums[output] = std::max(sums[output], 0.0);
            }
        }
        values = sums;
    }
    return 1 / (1 + std::exp(-values[0]));
}

std::vector<float> scores(Engine &engine, const std::vector<float> &rows) {
    const std::size_t count = rows.size() / feature_width;
    std::copy(rows.begin(), rows.end(), engine.input(0));
    engine.submit(0, count);
    REQUIRE(engine.poll(0) == Engine::Status::done);
    return {engine.output(0), engine.output(0) + count};
}

} // namespace

TEST_SUITE_BEGIN("perceptron");

TEST_CASE("parameters are the words of splitmix64") {
    // The first two words of splitmix64 from seed 0 are e220a8397b1dcdaf and 6e789e6aa1b965f4.
    const auto scale = static_cast<float>(std::sqrt(6.0 / 64) * 0x1p-23);
    CHECK(perceptron::parameter(0, 0, 0) == static_cast<float>(0xe220a8 - 0x800000) * scale);
    CHECK(perceptron::parameter(0, 0, 1) == static_cast<float>(0x6e789e - 0x800000) * scale);
    CHECK(perceptron::parameter(4, 64, 0) == 2.0F);
    CHECK(std::abs(perceptron::parameter(1, 512, 7)) < 0.1F);
}

TEST_CASE("every batch size scores as the definition does, on every instruction set") {
    const std::vector<float> rows = some_rows(128);
    std::vector<double> expected;
    for (std::size_t row = 0; row < 128; ++row) {
        expected.push_back(plain_score(rows.data() + row * feature_width));
    }
    CHECK(*std::min_element(expected.begin(), expected.end()) < 0.1); // spread over the range
    CHECK(*std::max_element(expected.begin(), expected.end()) > 0.9);
    for (const Isa isa : isas()) {
        CAPTURE(name(isa));
        CpuEngine engine(128, isa);
        std::vector<float> alone;
        for (std::size_t row = 0; row < 128; ++row) {
            const auto from = rows.begin() + static_cast<std::ptrdiff_t>(row * feature_width);
            alone.push_back(scores(engine, {from, from + feature_width})[0]);
        }
        for (std::size_t batch = 1; batch <= 128; ++batch) {
            CAPTURE(batch);
            const auto end = rows.begin() + static_cast<std::ptrdiff_t>(batch * feature_width);
            const std::vector<float> seen = scores(engine, {rows.begin(), end});
            for (std::size_t row = 0; row < batch; ++row) {
                REQUIRE(std::abs(static_cast<double>(seen[row]) - expected[row]) < 1e-5);
                REQUIRE(seen[row] == alone[row]); // to the bit: no row's score depends on its company
            }
        }
    }
}

TEST_CASE("an engine made for few rows scores them like one made for many") {
    const std::vector<float> rows = some_rows(3);
    for (const Isa isa : isas()) {
        CpuEngine few(3, isa);
        CpuEngine many(128, isa);
        CHECK(scores(few, rows) == scores(many, rows));
        CHECK(few.max_batch() == 3);
    }
}

TEST_CASE("rows beyond the batch are left out, and none is nothing") {
    CpuEngine engine(2);
    std::copy_n(some_rows(2).begin(), 2 * feature_width, engine.input(0));
    engine.submit(0, 1'000);
    CHECK(engine.output(0)[1] > 0.0F);
    engine.submit(0, 0);
    CHECK(engine.poll(0) == Engine::Status::done);
}

TEST_CASE("the widest inputs saturate the score and don't break it") {
    for (const Isa isa : isas()) {
        CpuEngine engine(1, isa);
        for (const float extreme : {1e30F, -1e30F, std::numeric_limits<float>::denorm_min()}) {
            std::fill_n(engine.input(0), feature_width, extreme);
            engine.submit(0, 1);
            CHECK(engine.output(0)[0] >= 0.0F);
            CHECK(engine.output(0)[0] <= 1.0F);
        }
    }
}

TEST_CASE("buffers begin cache lines, on huge pages too where there are some") {
    for (const Backing backing : {Backing::heap, Backing::huge_pages}) {
        for (const std::size_t batch : {1U, 5U, 128U}) {
            CpuEngine engine(batch, best_isa(), backing);
            CHECK(reinterpret_cast<std::uintptr_t>(engine.input(0)) % 64 == 0);
            CHECK(reinterpret_cast<std::uintptr_t>(engine.output(0)) % 64 == 0);
            CHECK(scores(engine, some_rows(batch)).size() == batch);
        }
    }
}

TEST_CASE("what can't be is refused") {
    CHECK_THROWS_AS(CpuEngine(0), std::invalid_argument);
    CHECK_THROWS_AS(CpuEngine(129), std::invalid_argument);
    CHECK_THROWS_AS(NullEngine(0), std::invalid_argument);
    CHECK_THROWS_AS(NullEngine(65'537), std::invalid_argument);
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (!available(isa)) {
            CHECK_THROWS_AS(CpuEngine(1, isa), std::invalid_argument);
        }
    }
}

TEST_CASE("the null engine scores all rows 0.5") {
    NullEngine engine(5);
    CHECK(scores(engine, some_rows(5)) == std::vector<float>(5, 0.5F));
    CHECK(engine.name() == "null");
    CHECK(reinterpret_cast<std::uintptr_t>(engine.input(0)) % 64 == 0);
}

TEST_CASE("scoring allocates nothing and calls no kernel") {
    NullEngine null(8);
    std::vector<std::unique_ptr<CpuEngine>> engines;
    for (const Isa isa : isas()) {
        engines.push_back(std::make_unique<CpuEngine>(32, isa));
    }
    const auto work = [&] {
        for (const auto &engine : engines) {
            for (const std::size_t batch : {1U, 2U, 3U, 7U, 32U}) {
                engine->submit(0, batch);
                if (engine->poll(0) != Engine::Status::done) {
                    std::abort();
                }
            }
        }
        null.submit(0, 8);
    };
    const std::size_t before = hwtune_test::allocations();
    work();
    CHECK(hwtune_test::allocations() == before);
    CHECK(hwtune_test::system_calls([] { getppid(); }) != hwtune_test::Calls::none); // it can tell
    CHECK(hwtune_test::system_calls(work) != hwtune_test::Calls::some);
}

TEST_SUITE_END();
