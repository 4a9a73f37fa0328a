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
// Rounding. Windows are sums of integers (prices times volumes in units of 2^-80 in 192 bits, skew in units of
// 2^-42): what comes in goes out again to the last bit, so there is no drift, and price - VWAP is formed before
// anything is rounded. Decayed sums are of what is not negative, and are scaled by powers of two only: with n ticks
// in the memory of a half-life their relative error is at most (n + 8) 2^-53, 10^-9 for nine million ticks.

#pragma once

#include "hwtune/engine.hpp"
#include "hwtune/messages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace hwtune {

namespace detail {

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

// A signed integer of 192 bits; what the sums need of one.
struct Int192 {
    uint128 low = 0;
    std::int64_t high = 0;

    void add(const Int192 &other) noexcept {
        low += other.low;
        high += other.high + (low < other.low ? 1 : 0);
    }
    void subtract(const Int192 &other) noexcept {
        const bool borrow = low < other.low;
        low -= other.low;
        high -= other.high + (borrow ? 1 : 0);
    }
    // value times 2^shift, shift from 0 to 63
    [[nodiscard]] static Int192 shifted(int128 value, unsigned shift) noexcept {
        const auto lower = static_cast<std::uint64_t>(value);
        const auto upper = static_cast<std::int64_t>(value >> 64);
        const std::uint64_t carried = lower >> 1U >> (63U - shift); // no shift by 64, which is undefined
        const std::uint64_t middle = static_cast<std::uint64_t>(upper) << shift | carried;
        return {static_cast<uint128>(middle) << 64U | lower << shift, upper >> 1 >> (63U - shift)};
    }
    // Within 2^-52 of it, for numbers under 2^158 in size. The limbs below the top one are not negative, so that the
    // sums in which much cancels are exact.
    [[nodiscard]] double approximate() const noexcept {
        constexpr std::uint64_t limb = (std::uint64_t{1} << 53U) - 1;
        const auto first = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) & limb);
        const auto second = static_cast<std::int64_t>(static_cast<std::uint64_t>(low >> 53U) & limb);
        const std::int64_t third = high * (std::int64_t{1} << 22U) | static_cast<std::int64_t>(low >> 106U);
        const double upper = static_cast<double>(third) * 0x1p53 + static_cast<double>(second);
        return upper * 0x1p53 + static_cast<double>(first);
    }
};

// A price as mantissa times 2^(shift - 80), exactly.
struct ExactPrice {
    std::int64_t mantissa = 0;
    unsigned shift = 0;
    double value = 0.0;

    static constexpr double unit = 0x1p-80;
    static constexpr double smallest = 0x1p-28;
    static constexpr double limit = 0x1p36;

    [[nodiscard]] static bool is_one(double price) noexcept { return std::abs(price) < limit; } // NaN is not
    [[nodiscard]] static ExactPrice of(double price) noexcept {
        if (std::abs(price) < smallest) {
            return {};
        }
        const auto bits = std::bit_cast<std::uint64_t>(price);
        const auto exponent = static_cast<unsigned>(bits >> 52U) & 0x7ffU; // 995 to 1058
        const auto size = static_cast<std::int64_t>((bits & ((std::uint64_t{1} << 52U) - 1)) | std::uint64_t{1} << 52U);
        return {price < 0.0 ? -size : size, exponent - 995U, price};
    }
    [[nodiscard]] Int192 times(std::int64_t volume) const noexcept {
        return Int192::shifted(static_cast<int128>(mantissa) * volume, shift);
    }
};

} // namespace detail

class FeatureWindow {
  public:
    static constexpr std::size_t lanes = 8; // windows, and half-lives
    static constexpr std::array<std::size_t, lanes> window_ticks{8, 16, 32, 64, 128, 256, 512, 1024};
    static constexpr std::array<unsigned, lanes> half_life_log2_ns{14, 16, 18, 20, 22, 24, 26, 28};

    FeatureWindow() noexcept {
        for (std::size_t step = 0; step < fractions; ++step) {
            powers_[step] = std::exp2(static_cast<double>(step) / static_cast<double>(fractions));
        }
    }

    // Adds a tick and writes its row of feature_width floats. `time_ns`: when it was due, since any moment that stays
    // the same. About 66 KB of memory, all in the object: nothing is allocated.
    void update(const Tick &tick, std::uint64_t time_ns, float *row) noexcept { advance(tick, time_ns, row); }
    // The same before the last rounding.
    void update(const Tick &tick, std::uint64_t time_ns, double *row) noexcept { advance(tick, time_ns, row); }

  private:
    // Two lanes at a time, which every processor of the baseline can (SSE2, NEON).
    typedef double Pair __attribute__((vector_size(16)));
    static constexpr std::size_t pairs = lanes / 2;
    static constexpr Pair one{1.0, 1.0};
    // Of a half-life: 64ths that have passed, and what is left in half-lives.
    struct Phase {
        std::uint64_t step;
        double rest;
    };
    using Lanes = std::array<Pair, pairs>;

    // What a tick adds to the windows. The doubles are integers (skew: in units of 2^-42), and 1,024 of them sum up to
    // less than 2^53, so that their sums are exact too.
    struct Sums {
        detail::Int192 traded; // price times volume
        double volume = 0.0;
        double delta = 0.0;
        double size = 0.0;
        double imbalance = 0.0;
        double skew = 0.0;

        void slide(const Sums &in, const Sums &out) noexcept {
            traded.add(in.traded);
            traded.subtract(out.traded);
            volume += in.volume - out.volume;
            delta += in.delta - out.delta;
            size += in.size - out.size;
            imbalance += in.imbalance - out.imbalance;
            skew += in.skew - out.skew;
        }
    };

    static constexpr std::size_t ring_size = window_ticks.back();
    static constexpr std::size_t fractions = 64;
    static constexpr unsigned fraction_bits = 6;
    static_assert(std::size_t{1} << fraction_bits == fractions && std::has_single_bit(ring_size));
    static constexpr double skew_rounder = 0x1.8p10; // a sum of this size has its last bit at 2^-42
    static constexpr Lanes per_root_of_window{Pair{0.35355339059327379, 0.25}, Pair{0.17677669529663689, 0.125},
                                              Pair{0.08838834764831845, 0.0625}, Pair{0.044194173824159223, 0.03125}};

    template <class Number> void advance(const Tick &tick, std::uint64_t time_ns, Number *row) noexcept {
        const bool priced = detail::ExactPrice::is_one(tick.price);
        if (priced) {
            price_ = detail::ExactPrice::of(tick.price);
        }
        const std::uint32_t volume = priced ? tick.volume : 0;
        const double skew = skew_of(tick.bid, tick.ask, price_.value);
        windows(tick, volume, skew, row);
        decayed(tick, volume, skew, time_ns, row + 4 * lanes);
    }

    [[nodiscard]] static double skew_of(double bid, double ask, double price) noexcept {
        if (!detail::ExactPrice::is_one(bid) || !detail::ExactPrice::is_one(ask) || !(bid < ask)) {
            return 0.0;
        }
        const double inside = std::min(std::max(price, bid), ask);
        return ((inside - bid) - (ask - inside)) / (ask - bid);
    }

    template <class Number>
    void windows(const Tick &tick, std::uint32_t volume, double skew, Number *row) noexcept {
        const double bid_size = tick.bid_size;
        const double ask_size = tick.ask_size;
        const double traded = volume;
        const Sums in{price_.times(volume), traded, tick.aggressor != 0 ? traded : -traded, bid_size + ask_size,
                      bid_size - ask_size, (skew + skew_rounder) - skew_rounder};

        if (count_ < ring_size) {
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const std::uint64_t held = std::min<std::uint64_t>(count_ + 1, window_ticks[lane]);
                per_tick_[lane / 2][lane % 2] = 1.0 / static_cast<double>(held);
            }
        }
        const double basis_point = price_.mantissa == 0 ? 0.0 : 1e4 * detail::ExactPrice::unit / std::abs(price_.value);
#pragma GCC unroll 4 // so that all shifts and places are constants: three times as fast
        for (std::size_t at = 0; at < pairs; ++at) {
            Sums &first = sums_[2 * at];
            Sums &second = sums_[2 * at + 1];
            first.slide(in, ring_[(count_ - window_ticks[2 * at]) % ring_size]);
            second.slide(in, ring_[(count_ - window_ticks[2 * at + 1]) % ring_size]);

            // What is above a 0 is 0 too. One division for two, as divisions are what takes longest.
            const Pair lots = larger(Pair{first.volume, second.volume}, one);
            const Pair quoted = larger(Pair{first.size, second.size}, one);
            const Pair both = 1.0 / (lots * quoted);
            const Pair per_lot = both * quoted;
            const Pair astray{distance(first), distance(second)};
            store(row, at, clipped(astray * per_lot * (basis_point * per_root_of_window[at])));
            store(row + lanes, at, clipped(Pair{first.imbalance, second.imbalance} * (both * lots)));
            store(row + 2 * lanes, at, Pair{first.skew, second.skew} * per_tick_[at]);
            store(row + 3 * lanes, at, clipped(Pair{first.delta, second.delta} * per_lot));
        }
        ring_[count_ % ring_size] = in;
        ++count_;
    }

    // (price - VWAP) times volume, in units of 2^-80
    [[nodiscard]] double distance(const Sums &sums) const noexcept {
        detail::Int192 all = price_.times(static_cast<std::int64_t>(sums.volume));
        all.subtract(sums.traded);
        return all.approximate();
    }

    // The weights grow instead of the sums shrinking: a tick at time t goes in with 2^(t/h - e), and when e, the whole
    // half-lives since the beginning of time, moves on, the sums are divided by that power of two, which is exact.
    template <class Number>
    void decayed(const Tick &tick, std::uint32_t volume, double skew, std::uint64_t time_ns, Number *row) noexcept {
        const std::uint64_t now = std::max(time_ns, time_ns_);
        const std::uint64_t before = std::exchange(time_ns_, now);
        const double bought = tick.aggressor != 0 ? volume : 0.0;
        const double size = static_cast<double>(tick.bid_size) + static_cast<double>(tick.ask_size);
        const double place = 0.5 + 0.5 * skew;
#pragma GCC unroll 4 // so that all shifts and places are constants: three times as fast
        for (std::size_t at = 0; at < pairs; ++at) {
            const Pair fade{fading(before, now, 2 * at), fading(before, now, 2 * at + 1)};
            const Pair weight = weights(now, 2 * at);
            const Pair ticks = weights_[at] = weights_[at] * fade + weight;
            const Pair traded = volumes_[at] = volumes_[at] * fade + weight * static_cast<double>(volume);
            const Pair buys = bought_[at] = bought_[at] * fade + weight * bought;
            const Pair quotes = sizes_[at] = sizes_[at] * fade + weight * size;
            const Pair bids = bid_sizes_[at] =
                bid_sizes_[at] * fade + weight * static_cast<double>(tick.bid_size);
            const Pair places = places_[at] = places_[at] * fade + weight * place;

            const Pair half = 0.5 * weight;
            const Pair lots = weight + traded;
            const Pair quoted = weight + quotes;
            const Pair stays = weight + ticks;
            const Pair of_lots = 1.0 / (ticks * stays * lots * quoted); // one division for four
            const Pair of_ticks = of_lots * (lots * quoted);
            store(row, at, smaller(weight * (of_ticks * stays), one));
            store(row + lanes, at, smaller((half + buys) * (of_lots * (ticks * stays) * quoted), one));
            store(row + 2 * lanes, at, smaller((half + bids) * (of_lots * (ticks * stays) * lots), one));
            store(row + 3 * lanes, at, smaller((half + places) * (of_ticks * ticks), one));
        }
    }

    [[nodiscard]] static Pair larger(Pair a, Pair b) noexcept { return a > b ? a : b; }
    [[nodiscard]] static Pair smaller(Pair a, Pair b) noexcept { return a < b ? a : b; }
    [[nodiscard]] static Pair clipped(Pair x) noexcept { return larger(smaller(x, one), -one); }
    // What is left of a weight when the whole half-lives have moved on.
    [[nodiscard]] static double fading(std::uint64_t before, std::uint64_t now, std::size_t lane) noexcept {
        const std::uint64_t passed = (now >> half_life_log2_ns[lane]) - (before >> half_life_log2_ns[lane]);
        // What is 2^-500 of what comes in is nothing beside it, and nothing beside the lot more.
        return passed < 500 ? std::bit_cast<double>((1023 - passed) << 52U) : 0.0;
    }
    // 2 to the part of a half-life that is not whole, for a lane and the next.
    [[nodiscard]] Pair weights(std::uint64_t now, std::size_t lane) const noexcept {
        const Phase first = phase(now, half_life_log2_ns[lane]);
        const Phase second = phase(now, half_life_log2_ns[lane + 1]);
        return Pair{powers_[first.step], powers_[second.step]} * small_exp2(Pair{first.rest, second.rest});
    }
    [[nodiscard]] static Phase phase(std::uint64_t now, unsigned bits) noexcept {
        const std::uint64_t part = now & ((std::uint64_t{1} << bits) - 1);
        const std::uint64_t step = part >> (bits - fraction_bits);
        const auto rest = static_cast<std::int64_t>(part & ((std::uint64_t{1} << (bits - fraction_bits)) - 1));
        return {step, static_cast<double>(rest) * std::bit_cast<double>(std::uint64_t{1023 - bits} << 52U)};
    }
    // 2^x for x from 0 to 1/64: the series of exp(x ln 2), cut where the next term is 3e-18.
    [[nodiscard]] static Pair small_exp2(Pair x) noexcept {
        const Pair y = x * 0.6931471805599453;
        return 1.0 + y * (1.0 + y * (1.0 / 2 + y * (1.0 / 6 + y * (1.0 / 24 + y * (1.0 / 120 + y * (1.0 / 720))))));
    }
    template <class Number> static void store(Number *row, std::size_t at, Pair values) noexcept {
        typedef Number Out __attribute__((vector_size(2 * sizeof(Number))));
        const Out out = __builtin_convertvector(values, Out);
        std::memcpy(row + 2 * at, &out, sizeof(out));
    }

    alignas(64) std::array<Sums, ring_size> ring_{}; // the last ticks, each one line
    alignas(64) std::array<Sums, lanes> sums_{};
    alignas(64) Lanes weights_{};
    Lanes volumes_{};
    Lanes bought_{};
    Lanes sizes_{};
    Lanes bid_sizes_{};
    Lanes places_{};
    Lanes per_tick_{}; // 1 over the ticks in each window
    std::array<double, fractions> powers_{};
    std::uint64_t count_ = 0;
    std::uint64_t time_ns_ = 0;
    detail::ExactPrice price_;
};

} // namespace hwtune
