// When ticks are due: an open loop. The schedule never looks at what became of earlier ticks, so a stall
// anywhere is charged to every tick that fell due in it (no coordinated omission).

#pragma once

#include "hwtune/messages.hpp"
#include "hwtune/random.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>

namespace hwtune {

enum class Arrivals : std::uint8_t { fixed, poisson, burst, recorded };

// A tick as a file holds it: its time since the first one, and the market.
struct RecordedTick {
    std::uint64_t time_ns;
    double bid;
    double ask;
    double price;
    std::uint32_t bid_size;
    std::uint32_t ask_size;
    std::uint32_t volume;
    std::uint32_t aggressor;
};
static_assert(sizeof(RecordedTick) == 48);

struct ArrivalPlan {
    Arrivals kind = Arrivals::fixed;
    double rate = 100'000.0;        // ticks a second, in the mean
    std::uint32_t burst_size = 32;  // of a burst: ticks that are due at one instant
    std::uint64_t seed = 1;
    std::span<const RecordedTick> recorded{}; // ascending times; must outlive the run
};

inline constexpr std::uint64_t no_more = std::numeric_limits<std::uint64_t>::max();

// Nanoseconds from the start of a section to each of its ticks, one after the other.
class Schedule {
  public:
    explicit Schedule(const ArrivalPlan &plan) : plan_(plan), random_(plan.seed) {
        if (plan.kind == Arrivals::recorded) {
            for (std::size_t i = 1; i < plan.recorded.size(); ++i) {
                if (plan.recorded[i].time_ns < plan.recorded[i - 1].time_ns) {
                    throw std::invalid_argument("the recorded ticks are not in the order of their times");
                }
            }
            return;
        }
        if (!(plan.rate >= 1e-3 && plan.rate <= 1e9)) {
            throw std::invalid_argument("the rate must be from 0.001 to 1,000,000,000 ticks a second");
        }
        if (plan.burst_size < 1) {
            throw std::invalid_argument("a burst has one tick at least");
        }
        mean_ns_ = 1e9 / plan.rate;
    }

    // Of the next tick; `no_more` at the end of a recording.
    [[nodiscard]] std::uint64_t next() noexcept {
        const std::uint64_t n = count_++;
        switch (plan_.kind) {
        case Arrivals::fixed: // by multiplication: a sum of rounded steps would drift
            return static_cast<std::uint64_t>(static_cast<double>(n) * mean_ns_);
        case Arrivals::poisson: {
            const double due = elapsed_ns_;
            elapsed_ns_ += random_.exponential() * mean_ns_;
            return static_cast<std::uint64_t>(due);
        }
        case Arrivals::burst:
            return static_cast<std::uint64_t>(static_cast<double>(n - n % plan_.burst_size) * mean_ns_);
        case Arrivals::recorded:
            break;
        }
        return n < plan_.recorded.size() ? plan_.recorded[n].time_ns - plan_.recorded[0].time_ns : no_more;
    }

  private:
    ArrivalPlan plan_;
    Random random_;
    double mean_ns_ = 0.0;
    double elapsed_ns_ = 0.0;
    std::uint64_t count_ = 0;
};

// A market that nobody would trade in, but with the properties that the features look at: a price that walks in
// whole cents, a spread of one to four of them, sizes and trades on both sides.
class Market {
  public:
    explicit Market(std::uint64_t seed) noexcept : random_(seed) {}

    void next(Tick &tick) noexcept {
        const std::uint64_t bits = random_.next();
        cents_ += static_cast<std::int64_t>(bits & 3U) - static_cast<std::int64_t>((bits >> 2U) & 3U);
        cents_ = std::clamp<std::int64_t>(cents_, 100, 100'000'000);
        const auto spread = static_cast<std::int64_t>(1U + ((bits >> 4U) & 3U));
        const bool buyer = ((bits >> 6U) & 1U) != 0;
        tick.bid = static_cast<double>(cents_) / 100.0;
        tick.ask = static_cast<double>(cents_ + spread) / 100.0;
        tick.price = buyer ? tick.ask : tick.bid;
        tick.bid_size = 1U + static_cast<std::uint32_t>((bits >> 8U) & 1023U);
        tick.ask_size = 1U + static_cast<std::uint32_t>((bits >> 18U) & 1023U);
        tick.volume = 1U + static_cast<std::uint32_t>((bits >> 28U) & 255U);
        tick.aggressor = buyer ? 1U : 0U;
    }

  private:
    Random random_;
    std::int64_t cents_ = 10'000;
};

} // namespace hwtune
