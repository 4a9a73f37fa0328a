// A clock that costs a few nanoseconds a reading and says how far it can be trusted.
//
// The hardware counter is used where its rate can't change: on x86-64 rdtsc, if CPUID says that the TSC is
// invariant (leaf 0x80000007, EDX bit 8; Intel SDM vol. 3, "Invariant TSC"; AMD APM vol. 3, E.4.6) and the
// kernel itself keeps time with it (its watchdog hands "tsc" back when TSCs disagree); on AArch64 CNTVCT_EL0,
// which the architecture fixes in rate (Arm ARM, "The Generic Timer"). Anywhere else, and when calibration
// shows a rate that isn't constant, the clock is CLOCK_MONOTONIC_RAW, and `why` says so.

#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <time.h>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace hwtune {

enum class Source : std::uint8_t { tsc, cntvct, monotonic_raw };

[[nodiscard]] constexpr std::string_view name(Source source) noexcept {
    switch (source) {
    case Source::tsc:
        return "tsc";
    case Source::cntvct:
        return "cntvct";
    case Source::monotonic_raw:
        break;
    }
    return "monotonic_raw";
}

// A POSIX clock as a counter of nanoseconds.
template <clockid_t id> struct PosixClock {
    static constexpr Source source = Source::monotonic_raw;

    [[nodiscard]] static std::uint64_t read() noexcept {
        timespec now{};
        clock_gettime(id, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
    }
    [[nodiscard]] static std::uint64_t read_after() noexcept { return read(); }
    [[nodiscard]] static std::uint64_t read_ordered() noexcept { return read(); }
};
using RawClock = PosixClock<CLOCK_MONOTONIC_RAW>;
using MonotonicClock = PosixClock<CLOCK_MONOTONIC>;

// read(): cheapest, may move among its neighbouring instructions: a processor that runs ahead takes it up to some
// hundred instructions early. read_after(): after everything before it has completed. read_ordered(): that, and before
// anything behind it has begun. (Intel SDM vol. 2, RDTSC: LFENCE before and after it.)
#if defined(__x86_64__)
struct HardwareCounter {
    static constexpr Source source = Source::tsc;
    static constexpr std::string_view clocksource = "tsc";

    [[nodiscard]] static std::uint64_t read() noexcept { return __rdtsc(); }
    [[nodiscard]] static std::uint64_t read_after() noexcept {
        _mm_lfence();
        return __rdtsc();
    }
    [[nodiscard]] static std::uint64_t read_ordered() noexcept {
        _mm_lfence();
        const std::uint64_t ticks = __rdtsc();
        _mm_lfence();
        return ticks;
    }
    [[nodiscard]] static bool constant_rate() noexcept {
        unsigned eax = 0;
        unsigned ebx = 0;
        unsigned ecx = 0;
        unsigned edx = 0;
        return __get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8U)) != 0;
    }
};
#elif defined(__aarch64__)
struct HardwareCounter {
    static constexpr Source source = Source::cntvct;
    static constexpr std::string_view clocksource = "arch_sys_counter";

    [[nodiscard]] static std::uint64_t read() noexcept {
        std::uint64_t ticks = 0;
        asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
    [[nodiscard]] static std::uint64_t read_after() noexcept {
        std::uint64_t ticks = 0;
        asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
        return ticks;
    }
    [[nodiscard]] static std::uint64_t read_ordered() noexcept {
        std::uint64_t ticks = 0;
        asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
        return ticks;
    }
    [[nodiscard]] static bool constant_rate() noexcept { return true; }
};
#else
struct HardwareCounter : RawClock {
    static constexpr std::string_view clocksource = {};

    [[nodiscard]] static bool constant_rate() noexcept { return false; }
};
#endif

struct Trust {
    bool trusted = false;
    std::string why;
};

// Whether a counter whose rate is `constant` may stand for time, given the kernel's own clocksource
// (nullopt: could not be read).
[[nodiscard]] inline Trust judge(bool constant, std::string_view wanted,
                                 const std::optional<std::string> &clocksource) {
    if (wanted.empty()) {
        return {false, "this processor has no counter that hwtune can read"};
    }
    if (!constant) {
        return {false, "the processor does not promise a constant rate of its TSC"};
    }
    if (!clocksource) {
        return {false, "the kernel's current clocksource could not be read"};
    }
    if (*clocksource != wanted) {
        return {false, "the kernel keeps time with " + *clocksource + ", not with " + std::string(wanted)};
    }
    return {true, "constant rate, and the kernel keeps time with it"};
}

[[nodiscard]] inline std::optional<std::string> current_clocksource() {
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string word;
    if (file >> word) {
        return word;
    }
    return std::nullopt;
}

// A reading of the reference with the counter read before and after it: the reference's instant lies between.
struct Pair {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    std::uint64_t reference_ns = 0;

    [[nodiscard]] std::uint64_t width() const noexcept { return after - before; }
    [[nodiscard]] double middle() const noexcept {
        return static_cast<double>(before) + static_cast<double>(width()) / 2.0;
    }
};

// The tightest of `tries` pairs: interrupts and steal only ever widen one.
template <class Counter, class Reference>
[[nodiscard]] Pair tightest_pair(Counter &counter, Reference &reference, int tries = 128) {
    Pair best;
    for (int i = 0; i < tries; ++i) {
        Pair pair;
        pair.before = counter.read_ordered();
        pair.reference_ns = reference.read();
        pair.after = counter.read_ordered();
        if (pair.after >= pair.before && (best.reference_ns == 0 || pair.width() < best.width())) {
            best = pair;
        }
    }
    return best;
}

struct Cost {
    double cost_ticks = 0.0; // one read(), the best of several batches
    std::uint64_t step_ticks = 0; // smallest advance seen between two reads (0: it never moved)
};

template <class Counter> [[nodiscard]] Cost measure_cost(Counter &counter, int batches = 32) {
    constexpr int reads = 256;
    Cost cost;
    double best = 0.0;
    for (int batch = 0; batch < batches; ++batch) {
        const std::uint64_t begin = counter.read_ordered();
        std::uint64_t last = begin;
        for (int i = 0; i < reads; ++i) {
            const std::uint64_t now = counter.read();
            if (now > last && (cost.step_ticks == 0 || now - last < cost.step_ticks)) {
                cost.step_ticks = now - last;
            }
            last = now;
        }
        const double mean = static_cast<double>(last - begin) / reads;
        best = batch == 0 ? mean : std::min(best, mean);
    }
    cost.cost_ticks = best;
    return cost;
}

struct Calibration {
    double ns_per_tick = 1.0;
    double error_ppm = 0.0; // bound on the rate's error, from the widths of the pairs
    bool steady = false; // both halves of the window gave one rate, within their bounds
};

namespace detail {

struct Rate {
    double ns_per_tick = 0.0;
    double relative_error = 1.0;
};

[[nodiscard]] inline Rate rate_between(const Pair &a, const Pair &b, std::uint64_t step_ticks) {
    const double ticks = b.middle() - a.middle();
    if (b.reference_ns <= a.reference_ns || ticks <= 0.0) {
        return {};
    }
    // Each middle is at most half a width off, and the counter's value up to one step behind its time.
    const double slack = static_cast<double>(a.width() + b.width()) / 2.0 + 2.0 * static_cast<double>(step_ticks);
    // The reference reads whole nanoseconds: one more for each end.
    const double elapsed_ns = static_cast<double>(b.reference_ns - a.reference_ns);
    return {elapsed_ns / ticks, slack / ticks + 2.0 / elapsed_ns};
}

} // namespace detail

// The counter's rate against `reference` (nanoseconds) from three pairs with `wait()` between them.
template <class Counter, class Reference, class Wait>
[[nodiscard]] Calibration calibrate(Counter &counter, Reference &reference, std::uint64_t step_ticks, Wait &&wait) {
    const Pair first = tightest_pair(counter, reference);
    wait();
    const Pair middle = tightest_pair(counter, reference);
    wait();
    const Pair last = tightest_pair(counter, reference);

    const detail::Rate whole = detail::rate_between(first, last, step_ticks);
    const detail::Rate early = detail::rate_between(first, middle, step_ticks);
    const detail::Rate late = detail::rate_between(middle, last, step_ticks);
    if (whole.ns_per_tick <= 0.0 || early.ns_per_tick <= 0.0 || late.ns_per_tick <= 0.0) {
        return {};
    }
    const double apart = std::abs(early.ns_per_tick - late.ns_per_tick) / whole.ns_per_tick;
    return {whole.ns_per_tick, whole.relative_error * 1e6, apart <= early.relative_error + late.relative_error};
}

// What a clock is made of and how true it is. Copyable; reading it needs no lock.
struct Clock {
    Source source = Source::monotonic_raw;
    std::string why;
    double ns_per_tick = 1.0;
    double error_ppm = 0.0; // of the rate, against CLOCK_MONOTONIC_RAW
    double cost_ns = 0.0; // one reading
    double step_ns = 0.0; // smallest advance seen between two readings

    [[nodiscard]] std::uint64_t ticks() const noexcept {
        return source == Source::monotonic_raw ? RawClock::read() : HardwareCounter::read();
    }

    // For spans: exact to a tick up to 2^53 ticks, a month at 3 GHz.
    [[nodiscard]] double ns(std::uint64_t span_ticks) const noexcept {
        return static_cast<double>(span_ticks) * ns_per_tick;
    }

    // Calls `use` with the counter behind this clock, so that a loop compiles down to one instruction a reading.
    template <class Use> decltype(auto) with_counter(Use &&use) const {
        if (source == Source::monotonic_raw) {
            RawClock counter;
            return std::forward<Use>(use)(counter);
        }
        HardwareCounter counter;
        return std::forward<Use>(use)(counter);
    }
};

[[nodiscard]] inline Clock raw_clock(std::string why) {
    RawClock counter;
    const Cost cost = measure_cost(counter);
    return {Source::monotonic_raw, std::move(why), 1.0, 0.0, cost.cost_ticks, static_cast<double>(cost.step_ticks)};
}

// The best clock of this machine. Sleeps for `window`; a longer one narrows error_ppm in proportion.
[[nodiscard]] inline Clock make_clock(const std::optional<std::string> &clocksource = current_clocksource(),
                                      std::chrono::nanoseconds window = std::chrono::milliseconds(20)) {
    const Trust trust = judge(HardwareCounter::constant_rate(), HardwareCounter::clocksource, clocksource);
    if (!trust.trusted) {
        return raw_clock(trust.why);
    }
    HardwareCounter counter;
    RawClock reference;
    const Cost cost = measure_cost(counter);
    const Calibration result =
        calibrate(counter, reference, cost.step_ticks, [&] { std::this_thread::sleep_for(window / 2); });
    if (!result.steady) {
        return raw_clock("calibration found that the counter's rate is not constant");
    }
    return {HardwareCounter::source,
            trust.why,
            result.ns_per_tick,
            result.error_ppm,
            cost.cost_ticks * result.ns_per_tick,
            static_cast<double>(cost.step_ticks) * result.ns_per_tick};
}

} // namespace hwtune
