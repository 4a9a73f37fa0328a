// How to wait for the next message without a system call.
//
//     Poll poll;
//     while (running) {
//         if (const Tick *tick = consumer.front()) { use(*tick); consumer.release(); poll.found(); }
//         else { poll.empty(); }
//     }
//
// Each poll of an empty slot takes its cache line away from the producer that is about to write it. So pause at
// every empty poll; and after a run of messages, when the producer is likely to be in the middle of the next one,
// leave it alone for a little longer, once.

#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hwtune {

// Tells the core that this is a spin loop: it then leaves the loop without a pipeline flush, and its sibling runs.
inline void cpu_pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory"); // `yield` is a no-op on most cores; isb takes about as long as pause
#else
    asm volatile("" ::: "memory");
#endif
}

class Poll {
  public:
    static constexpr std::uint32_t run = 8;    // messages in a row, from which a producer counts as busy
    static constexpr std::uint32_t pauses = 4; // after such a run

    void found() noexcept { ++found_; }

    // How often it paused.
    std::uint32_t empty() noexcept {
        const std::uint32_t times = found_ >= run ? pauses : 1;
        found_ = 0;
        for (std::uint32_t i = 0; i < times; ++i) {
            cpu_pause();
        }
        return times;
    }

  private:
    std::uint32_t found_ = 0; // since the last empty poll
};

} // namespace hwtune
