// What bench/engine.py times: the engines, the feature stage, and the limits that they are held against, call by call.
// A shared library, so that Python's own session.run can be timed between them.

#include "hwtune/clock.hpp"
#include "hwtune/features.hpp"
#include "hwtune/onnx.hpp"
#include "hwtune/perceptron.hpp"
#include "hwtune/random.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

using namespace hwtune;

namespace {

// Of a batch of 32: a multiplication and an addition for each weight and row.
constexpr std::size_t batch = 32;
constexpr std::size_t multiply_adds = batch * (64 * 512 + 512 * 256 + 256 * 128 + 128 * 64 + 64);

volatile float sink = 0.0F;

// As many independent chains as hide the latency of one: more than the 8 of today's cores.
constexpr std::size_t chains = 12;

// Every float once, in order, by the widest loads; and nothing but multiply-adds, in registers.
#define HWTUNE_LIMITS(isa, width, target)                                                                              \
    namespace isa {                                                                                                    \
    typedef float Vector __attribute__((vector_size(4 * (width)), may_alias));                                         \
    target void read(const float *from, std::size_t floats) {                                                          \
        Vector sums[8] = {};                                                                                           \
        for (std::size_t at = 0; at + 8 * (width) <= floats; at += 8 * (width)) {                                      \
            for (std::size_t lane = 0; lane < 8; ++lane) {                                                             \
                sums[lane] += *reinterpret_cast<const Vector *>(from + at + lane * (width));                           \
            }                                                                                                          \
        }                                                                                                              \
        for (const Vector &sum : sums) {                                                                               \
            sink = sink + sum[0];                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    target void multiply() {                                                                                           \
        Vector sums[chains];                                                                                           \
        for (Vector &sum : sums) {                                                                                     \
            sum = Vector{} + 1.0F;                                                                                     \
        }                                                                                                              \
        const Vector factor = Vector{} + (0.999F + 0.0F * sink);                                                       \
        const Vector term = Vector{} + 1e-3F;                                                                          \
        for (std::size_t done = 0; done < multiply_adds; done += chains * (width)) {                                   \
            _Pragma("GCC unroll 12") for (std::size_t chain = 0; chain < chains; ++chain) {                            \
                sums[chain] = sums[chain] * factor + term;                                                             \
            }                                                                                                          \
        }                                                                                                              \
        for (const Vector &sum : sums) {                                                                               \
            sink = sink + sum[0];                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    }

HWTUNE_LIMITS(portable_limit, 4, )
#if defined(__x86_64__)
HWTUNE_LIMITS(avx2_limit, 8, __attribute__((target("avx2,fma"))))
HWTUNE_LIMITS(avx512_limit, 16, __attribute__((target("avx512f"))))
#endif

void read_once(Isa isa, const float *from) {
#if defined(__x86_64__)
    if (isa != Isa::portable) {
        (isa == Isa::avx512 ? avx512_limit::read : avx2_limit::read)(from, perceptron::Parameters::floats);
        return;
    }
#endif
    static_cast<void>(isa);
    portable_limit::read(from, perceptron::Parameters::floats);
}

void multiply_only(Isa isa) {
#if defined(__x86_64__)
    if (isa != Isa::portable) {
        (isa == Isa::avx512 ? avx512_limit::multiply : avx2_limit::multiply)();
        return;
    }
#endif
    static_cast<void>(isa);
    portable_limit::multiply();
}

// A market of its own: prices walk by ticks of a cent, quotes are one to three cents wide.
struct Market {
    static constexpr std::size_t count = 1U << 15U;
    std::vector<Tick> ticks;
    std::vector<std::uint64_t> times;

    Market() : ticks(count), times(count) {
        Random random(1);
        std::uint64_t now = 0;
        double cents = 10'000;
        for (std::size_t at = 0; at < count; ++at) {
            now += 1 + random.below(20'000);
            cents += static_cast<double>(random.below(3)) - 1.0;
            const double bid = (cents - 1 - static_cast<double>(random.below(2))) * 0.01;
            ticks[at] = {at, 0, 0, bid, (cents + 1) * 0.01, cents * 0.01, random.below(1'000), random.below(1'000),
                         random.below(1'000), random.below(2)};
            times[at] = now;
        }
    }
};

long preemptions() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

class Bench {
  public:
    Bench(const std::string &model, const std::string &library)
        : parameters_(best_isa(), Backing::heap), onnx_(model, library, batch) {
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
            if (!available(isa)) {
                continue;
            }
            const std::string name(hwtune::name(isa));
            Engine &engine = *engines_.emplace_back(std::make_unique<CpuEngine>(batch, isa));
            add_engine("cpu " + name, engine);
            calls_["read " + name] = [this, isa] { read_once(isa, parameters_.layer(0)); };
            calls_["multiply " + name] = [isa] { multiply_only(isa); };
        }
        add_engine("onnx", onnx_);
        calls_["features"] = [this] { features(); };
    }

    [[nodiscard]] bool time(const std::string &what, std::size_t calls, double *ns) {
        const auto found = calls_.find(what);
        if (found == calls_.end()) {
            return false;
        }
        found->second();
        clock_.with_counter([&](auto &counter) {
            for (std::size_t call = 0; call < calls; ++call) {
                const long before = preemptions();
                const std::uint64_t begin = counter.read();
                found->second();
                const std::uint64_t end = counter.read();
                ns[call] = preemptions() == before ? clock_.ns(end - begin) : -1.0;
            }
        });
        return true;
    }

  private:
    void add_engine(const std::string &name, Engine &engine) {
        Random random(2);
        for (std::size_t at = 0; at < batch * feature_width; ++at) {
            engine.input(0)[at] = static_cast<float>(random.uniform() * 2 - 1);
        }
        for (const std::size_t rows : {std::size_t{1}, batch}) {
            calls_[name + " " + std::to_string(rows)] = [&engine, rows] {
                engine.submit(0, rows);
                if (engine.poll(0) != Engine::Status::done) {
                    std::terminate();
                }
                sink = sink + engine.output(0)[rows - 1];
            };
        }
    }

    // 256 ticks.
    void features() {
        for (std::size_t count = 0; count < 256; ++count, ++tick_) {
            const std::size_t at = tick_ % Market::count;
            const std::uint64_t lap = tick_ / Market::count;
            window_.update(market_.ticks[at], market_.times[at] + lap * market_.times.back(), row_.data());
            sink = sink + row_[0];
        }
    }

    Clock clock_ = make_clock();
    perceptron::Parameters parameters_;
    OnnxEngine onnx_;
    std::vector<std::unique_ptr<CpuEngine>> engines_;
    Market market_;
    FeatureWindow window_;
    std::uint64_t tick_ = 0;
    alignas(64) std::array<float, feature_width> row_{};
    std::map<std::string, std::function<void()>> calls_;
};

std::unique_ptr<Bench> bench;

} // namespace

extern "C" {

int engine_bench_open(const char *model, const char *library) {
    try {
        bench = std::make_unique<Bench>(model, library);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "engine_bench: %s\n", error.what());
        return 1;
    }
}

const char *engine_bench_isa() { return hwtune::name(best_isa()).data(); }

// Nanoseconds of each of `calls` calls, after one that isn't counted; -1 for one that lost its CPU to another thread.
int engine_bench_time(const char *what, std::size_t calls, double *ns) { return bench->time(what, calls, ns) ? 0 : 1; }

} // extern "C"
