// What travels through the pipeline: a market tick on the way in, a decision on the way out. One cache line
// each, as the queue signals and hands over in the same line. All times are readings of the run's clock.

#pragma once

#include <cstdint>

namespace hwtune {

struct alignas(64) Tick {
    std::uint64_t sequence; // counts from 0; the top bit belongs to the queue
    std::uint64_t due;      // when it should have arrived: latency counts from here, whatever delayed the rest
    std::uint64_t pushed;   // when the generator handed it over
    double bid;
    double ask;
    double price; // of the trade
    std::uint32_t bid_size;
    std::uint32_t ask_size;
    std::uint32_t volume;    // of the trade
    std::uint32_t aggressor; // 1: the buyer crossed the spread, 0: the seller
};
static_assert(sizeof(Tick) == 64);

struct alignas(64) Decision {
    std::uint64_t sequence; // the tick's; the top bit belongs to the queue
    std::uint64_t due;
    std::uint64_t pushed;
    std::uint64_t popped;   // when the compute thread took the tick
    std::uint64_t featured; // when its feature row was complete
    std::uint64_t scored;   // when its batch was through the engine
    double price;
    float score; // 0 to 1
    std::uint32_t batch;
};
static_assert(sizeof(Decision) == 64);

} // namespace hwtune
