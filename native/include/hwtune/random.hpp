// Random numbers for synthetic markets: xoshiro256++ (Blackman and Vigna 2019), seeded through splitmix64, so
// that one seed gives one run on every machine. Not for secrets.

#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace hwtune {

class Random {
  public:
    explicit Random(std::uint64_t seed) noexcept {
        for (std::uint64_t &word : state_) {
            seed += 0x9E3779B97F4A7C15U;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
            z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
            word = z ^ (z >> 31U);
        }
    }

    [[nodiscard]] std::uint64_t next() noexcept {
        const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t shifted = state_[1] << 17U;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    // In [0, 1), 53 bits.
    [[nodiscard]] double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

    // From 0 to bound - 1; bound must be above 0. The high word of a product: biased by less than bound / 2^32.
    [[nodiscard]] std::uint32_t below(std::uint32_t bound) noexcept {
        return static_cast<std::uint32_t>(((next() >> 32U) * bound) >> 32U);
    }

    // Exponential with mean 1, never infinite: uniform() can be 0, 1 - uniform() cannot.
    [[nodiscard]] double exponential() noexcept { return -std::log(1.0 - uniform()); }

  private:
    std::array<std::uint64_t, 4> state_{};
};

} // namespace hwtune
