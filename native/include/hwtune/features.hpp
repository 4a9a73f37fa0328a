// Ticks in, feature rows out: what a perceptron is told about the market, one row a tick, constant work each.
//
// `price` below is the trade's; a tick is a trade with the quote that stood then. Windows hold the last W ticks
// (fewer at first), the newest one among them. A half-life h gives a tick of age a the weight w = 2^(-a/h).
//
// | columns | feature                      | formula                                               | range    |
// |---------|------------------------------|-------------------------------------------------------|----------|
// |  0 -  7 | VWAP: the price against it   | (price - S price volume / S volume) / unit, clipped   | -1 to 1  |
// |  8 - 15 | order imbalance              | S (bid_size - ask_size) / S (bid_size + ask_size)     | -1 to 1  |
// | 16 - 23 | spread skew                  | mean of skew                                          | -1 to 1  |
// | 24 - 31 | volume delta                 | S (bought - sold) / S volume                          | -1 to 1  |
// | 32 - 39 | time-decay weight            | 1 / S w: the newest tick's share of all the weight    | 0 to 1   |
// | 40 - 47 | volume delta, decayed        | (1/2 + S w bought) / (1 + S w volume)                 | 0 to 1   |
// | 48 - 55 | order imbalance, decayed     | (1/2 + S w bid_size) / (1 + S w (bid_size + ask_size))| 0 to 1   |
// | 56 - 63 | spread skew, decayed         | (1/2 + S w (1 + skew) / 2) / (1 + S w)                | 0 to 1   |
//
// S sums over the window (columns 0 to 31: W = 8, 16, 32 ... 1,024 ticks, in this order) or over all ticks so far
// (columns 32 to 63: h = 2^14, 2^16 ... 2^28 ns, in this order: 16 us to 268 ms). No column has a unit but these:
// `unit` is sqrt(W) basis points of the price, as a random walk strays by the square root of its steps; sizes and
// volumes are in lots, and the decayed columns are as if one more lot, half bought and half sold, or one more tick in
// the middle had just come, so that they are 1/2 where nothing happens. skew = ((price - bid) - (ask - price)) /
// (ask - bid), the price held within the quote: -1 for a trade at the bid, 1 for one at the ask; 0 where the market is
// locked or crossed. bought is the volume of the ticks whose aggressor is not 0, sold that of the others. A ratio with
// nothing below is 0.
//
// What is not a price: not finite, or 2^36 (6.9e10) or more in size. A trade without a price counts as one without
// volume at the last price that was one (0 before any); a quote without one has skew 0. A price nearer to 0 than
// 2^-28 (3.7e-9) is 0. Time that goes back stands still.
//
// Rounding. Windows are sums of integers (prices times volumes in units of 2^-80, in 192 bits; skew in units of 2^-42):
// what comes in goes out again to the last bit, so there is no drift, and price - VWAP is formed before anything is
// rounded. Decayed sums are of what is not negative, and are scaled by powers of two only: with n ticks in the memory
// of a half-life their relative error is at most (n + 100) 2^-53, 10^-9 for nine million ticks. The instruction set may
// change the last bits of a double, nothing more.

#pragma once

#include "hwtune/engine.hpp"
#include "hwtune/isa.hpp"
#include "hwtune/messages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

// A call from code for AVX to code for the baseline costs a hundred times what these do, as the upper halves of the
// registers have to be kept.
#define HWTUNE_INLINE __attribute__((always_inline)) inline

namespace hwtune {

namespace detail {

__extension__ typedef __int128 int128;

inline constexpr std::size_t feature_lanes = 8; // windows, and half-lives

// What a tick adds to the windows, one cache line.
struct alignas(64) FeatureRecord {
    typedef std::int64_t Exact __attribute__((vector_size(32)));
    typedef double Rest __attribute__((vector_size(32)));

    // Price times volume in units of 2^-80, as limbs of 53 bits, the lowest first and only the third with a sign; and
    // the volume. 1,024 of each fit 63 bits, so limbs are added up without a carry.
    Exact exact{};
    // Volume delta, size, imbalance, skew: integers (skew: in units of 2^-42) of which 1,024 sum up to less than 2^53,
    // so that their sums are exact too.
    Rest rest{};
};
static_assert(sizeof(FeatureRecord) == 64);

// A price as mantissa times 2^(shift - 80), exactly.
struct ExactPrice {
    std::int64_t mantissa = 0;
    unsigned shift = 0; // 0 to 63
    double value = 0.0;
    double per_basis_point = 0.0; // what makes basis points of the price of units of 2^-80; 0 for 0

    static constexpr double smallest = 0x1p-28;
    static constexpr double limit = 0x1p36;
    static constexpr unsigned limb_bits = 53;
    static constexpr std::int64_t limb = (std::int64_t{1} << limb_bits) - 1;

    [[nodiscard]] static bool is_one(double price) noexcept { return std::abs(price) < limit; } // NaN is not
    [[nodiscard]] static ExactPrice of(double price) noexcept {
        if (std::abs(price) < smallest) {
            return {};
        }
        const auto bits = std::bit_cast<std::uint64_t>(price);
        const auto exponent = static_cast<unsigned>(bits >> 52U) & 0x7ffU; // 995 to 1058
        const auto size = static_cast<std::int64_t>((bits & ((std::uint64_t{1} << 52U) - 1)) | std::uint64_t{1} << 52U);
        return {price < 0.0 ? -size : size, exponent - 995U, price, 0x1p-80 * 1e4 / std::abs(price)};
    }

    struct Limbs {
        std::int64_t first;
        std::int64_t second;
        std::int64_t third;
    };
    // Of price times volume, for volumes up to 2^42.
    [[nodiscard]] HWTUNE_INLINE Limbs limbs(std::int64_t volume) const noexcept {
        const int128 product = static_cast<int128>(mantissa) * volume;
        const auto lower = static_cast<std::uint64_t>(product);
        const auto upper = static_cast<std::int64_t>(product >> 64);
        // The product shifted, in three words; never by 64, which is undefined.
        const std::uint64_t low = lower << shift;
        const std::uint64_t middle = static_cast<std::uint64_t>(upper) << shift | lower >> 1U >> (63U - shift);
        const std::int64_t high = upper >> 1 >> (63U - shift);
        return {static_cast<std::int64_t>(low) & limb,
                static_cast<std::int64_t>(low >> limb_bits | middle << (64U - limb_bits)) & limb,
                static_cast<std::int64_t>(middle >> 42U | static_cast<std::uint64_t>(high) << 22U)};
    }

    // This price times the volume of `sums` less their price times volume, in units of 2^-80, within 2^-52 of it. Limbs
    // below the top one are not negative once carried, so that the sums in which much cancels are exact.
    [[nodiscard]] HWTUNE_INLINE double distance(const FeatureRecord::Exact &sums) const noexcept {
        const Limbs here = limbs(sums[3]);
        const std::int64_t first = here.first - sums[0];
        const std::int64_t second = here.second - sums[1] + (first >> limb_bits);
        const std::int64_t third = here.third - sums[2] + (second >> limb_bits);
        const double upper = static_cast<double>(third) * 0x1p53 + static_cast<double>(second & limb);
        return upper * 0x1p53 + static_cast<double>(first & limb);
    }
};

// A tick once everything that is no price has been dealt with.
struct FeatureInput {
    std::uint64_t time_ns;
    std::uint32_t volume;
    double bought;
    double size;
    double bid_size;
    double skew;
};

inline constexpr std::array<std::size_t, feature_lanes> window_ticks{8, 16, 32, 64, 128, 256, 512, 1024};
inline constexpr std::size_t ring_size = window_ticks.back();
inline constexpr double skew_rounder = 0x1.8p10; // a sum of this size has its last bit at 2^-42
inline constexpr double almost_one = 1 - 0x1p-49; // so that no rounding takes a share beyond 1
inline constexpr double root_of_two = 1.4142135623730951;
inline constexpr double half_ln_two = 0.34657359027997264;
inline constexpr double ln_two = 0.6931471805599453;
// 1 over the factorials from 11 down.
inline constexpr std::array<double, 12> exp_series{1.0 / 39'916'800, 1.0 / 3'628'800, 1.0 / 362'880, 1.0 / 40'320,
                                                   1.0 / 5'040,      1.0 / 720,       1.0 / 120,     1.0 / 24,
                                                   1.0 / 6,          1.0 / 2,         1.0,           1.0};

template <class Number> struct alignas(64) Eight : std::array<Number, feature_lanes> {};
inline constexpr Eight<double> per_root_of_window{{0.35355339059327379, 0.25, 0.17677669529663689, 0.125,
                                                   0.08838834764831845, 0.0625, 0.044194173824159223, 0.03125}};
inline constexpr Eight<std::uint64_t> half_life_bits{{14, 16, 18, 20, 22, 24, 26, 28}};
inline constexpr Eight<std::uint64_t> half_life_mask{{(1U << 14U) - 1, (1U << 16U) - 1, (1U << 18U) - 1,
                                                      (1U << 20U) - 1, (1U << 22U) - 1, (1U << 24U) - 1,
                                                      (1U << 26U) - 1, (1U << 28U) - 1}};
inline constexpr Eight<double> ln_two_per_half_life{{ln_two * 0x1p-14, ln_two * 0x1p-16, ln_two * 0x1p-18,
                                                     ln_two * 0x1p-20, ln_two * 0x1p-22, ln_two * 0x1p-24,
                                                     ln_two * 0x1p-26, ln_two * 0x1p-28}};
inline constexpr std::uint64_t longest_fade_ns = std::uint64_t{499} << 14U; // of 500 of the shortest half-lives

struct FeatureState {
    std::array<FeatureRecord, ring_size> ring{}; // the last ticks
    std::array<FeatureRecord, feature_lanes> sums{};
    Eight<double> per_tick{}; // 1 over the ticks in each window
    Eight<double> weights{};
    Eight<double> volumes{};
    Eight<double> bought{};
    Eight<double> sizes{};
    Eight<double> bid_sizes{};
    Eight<double> places{};
    ExactPrice price;
    std::uint64_t count = 0;
    std::uint64_t time_ns = 0;
};

namespace portable {
#define HWTUNE_TARGET
#define HWTUNE_WIDTH 2
#include "hwtune/feature_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
} // namespace portable

#if defined(__x86_64__)
namespace avx2 {
#define HWTUNE_TARGET __attribute__((target("avx2,fma,bmi2")))
#define HWTUNE_WIDTH 4
#include "hwtune/feature_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
} // namespace avx2

namespace avx512 {
#define HWTUNE_TARGET __attribute__((target("avx512f,avx2,fma,bmi2")))
#define HWTUNE_WIDTH 8
#include "hwtune/feature_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
} // namespace avx512
#endif

} // namespace detail

// Not for several threads at once. About 66 KB of memory, all in the object: nothing is allocated.
class FeatureWindow {
  public:
    // Throws std::invalid_argument for instructions that this processor lacks.
    explicit FeatureWindow(Isa isa = best_isa()) : isa_(checked(isa)) {}

    // Adds a tick and writes its row of feature_width floats. `time_ns`: when it was due, since any moment that stays
    // the same.
    void update(const Tick &tick, std::uint64_t time_ns, float *row) noexcept { advance(tick, time_ns, row); }
    // The same before the last rounding.
    void update(const Tick &tick, std::uint64_t time_ns, double *row) noexcept { advance(tick, time_ns, row); }

  private:
    template <class Number> void advance(const Tick &tick, std::uint64_t time_ns, Number *row) noexcept {
        const bool priced = detail::ExactPrice::is_one(tick.price);
        if (priced) {
            state_.price = detail::ExactPrice::of(tick.price);
        }
        if (state_.count < detail::ring_size) {
            for (std::size_t lane = 0; lane < detail::feature_lanes; ++lane) {
                const std::uint64_t held = std::min<std::uint64_t>(state_.count + 1, detail::window_ticks[lane]);
                state_.per_tick[lane] = 1.0 / static_cast<double>(held);
            }
        }
        const std::uint32_t volume = priced ? tick.volume : 0;
        const double bid_size = tick.bid_size;
        const detail::FeatureInput input{std::max(time_ns, state_.time_ns),
                                         volume,
                                         tick.aggressor != 0 ? static_cast<double>(volume) : 0.0,
                                         bid_size + static_cast<double>(tick.ask_size),
                                         bid_size,
                                         skew_of(tick.bid, tick.ask, state_.price.value)};
        switch (isa_) {
#if defined(__x86_64__)
        case Isa::avx512: detail::avx512::advance(state_, input, row); return;
        case Isa::avx2: detail::avx2::advance(state_, input, row); return;
#else
        case Isa::avx512:
        case Isa::avx2:
#endif
        case Isa::portable: detail::portable::advance(state_, input, row); return;
        }
    }

    [[nodiscard]] static double skew_of(double bid, double ask, double price) noexcept {
        if (!detail::ExactPrice::is_one(bid) || !detail::ExactPrice::is_one(ask) || !(bid < ask)) {
            return 0.0;
        }
        const double inside = std::min(std::max(price, bid), ask);
        return ((inside - bid) - (ask - inside)) / (ask - bid);
    }

    detail::FeatureState state_;
    Isa isa_;
};

} // namespace hwtune

#undef HWTUNE_INLINE
