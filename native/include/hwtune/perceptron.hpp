// The reference model: a perceptron of 64-512-256-128-64-1 (ReLU, the last a sigmoid), 205,825 parameters in float32,
// made from a formula rather than a file, so that every machine scores the same rows alike and nothing is downloaded.
//
// Parameters. Of layer l (0 to 4) from `inputs` to `outputs`, the weight from input i to output o, and for
// i = inputs the bias of o, is float(k) * float(limit * 2^-23), where k = (word >> 40) - 2^23, word is number
// n = 2^32 l + 2^16 i + o (from 0) of splitmix64 seeded with 0 (Steele, Lea and Flood 2014), and limit is
// sqrt(6 / inputs) for weights (He et al. 2015: what keeps the variance through ReLUs), six times that in the last
// layer, so that scores spread, and 0.1 for biases; the last layer's bias is 2, which centres the scores of markets.
//
// Time is that of reading the weights once for a batch of 1, and that of the multipliers for 8 and more: packed in
// panels that are read in order from end to end, and as many sums as the registers hold.

#pragma once

#include "hwtune/engine.hpp"
#include "hwtune/isa.hpp"
#include "hwtune/pages.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hwtune {

namespace perceptron {

inline constexpr std::size_t layers = 5;
inline constexpr std::array<std::size_t, layers + 1> widths{feature_width, 512, 256, 128, 64, 1};
inline constexpr std::size_t widest = 512;
inline constexpr std::size_t max_batch = 128;

// A weight, or for input == widths[layer] a bias.
[[nodiscard]] inline float parameter(std::size_t layer, std::size_t input, std::size_t output) noexcept {
    const bool last = layer == layers - 1;
    const bool bias = input == widths[layer];
    if (last && bias) {
        return 2.0F;
    }
    const std::uint64_t index = std::uint64_t{layer} << 32U | std::uint64_t{input} << 16U | output;
    std::uint64_t word = (index + 1) * 0x9E3779B97F4A7C15U;
    word = (word ^ word >> 30U) * 0xBF58476D1CE4E5B9U;
    word = (word ^ word >> 27U) * 0x94D049BB133111EBU;
    word ^= word >> 31U;
    const double limit = bias ? 0.1 : std::sqrt(6.0 / static_cast<double>(widths[layer])) * (last ? 6.0 : 1.0);
    const auto whole = static_cast<std::int64_t>(word >> 40U) - (std::int64_t{1} << 23U);
    return static_cast<float>(whole) * static_cast<float>(limit * 0x1p-23);
}

namespace portable {
#define HWTUNE_TARGET
#define HWTUNE_WIDTH 4
#define HWTUNE_SPREAD(x) Vector{(x), (x), (x), (x)}
#define HWTUNE_ROWS 4
#include "hwtune/perceptron_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
#undef HWTUNE_SPREAD
#undef HWTUNE_ROWS
} // namespace portable

#if defined(__x86_64__)
namespace avx2 {
#define HWTUNE_TARGET __attribute__((target("avx2,fma")))
#define HWTUNE_WIDTH 8
#define HWTUNE_SPREAD(x) _mm256_set1_ps(x)
#define HWTUNE_ROWS 6
#include "hwtune/perceptron_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
#undef HWTUNE_SPREAD
#undef HWTUNE_ROWS
} // namespace avx2

namespace avx512 {
#define HWTUNE_TARGET __attribute__((target("avx512f")))
#define HWTUNE_WIDTH 16
#define HWTUNE_SPREAD(x) _mm512_set1_ps(x)
#define HWTUNE_ROWS 11 // of 32 rows 11, 11 and 10
#include "hwtune/perceptron_kernel.inc"
#undef HWTUNE_TARGET
#undef HWTUNE_WIDTH
#undef HWTUNE_SPREAD
#undef HWTUNE_ROWS
} // namespace avx512
#endif

[[nodiscard]] constexpr std::size_t panel_width(Isa isa) noexcept {
    return isa == Isa::avx512 ? 32 : isa == Isa::avx2 ? 16 : 8;
}

// All parameters but the last layer's, packed for an instruction set, and the last layer's as they are. A layer is a
// row of panels; a panel is its biases, then for each input the weights to its outputs.
class Parameters {
  public:
    // Throws std::system_error without the memory.
    Parameters(Isa isa, Backing backing) : pages_(floats * sizeof(float), backing) {
        float *to = data();
        const std::size_t panel = panel_width(isa);
        for (std::size_t layer = 0; layer + 1 < layers; ++layer) {
            for (std::size_t output = 0; output < widths[layer + 1]; output += panel) {
                to = pack(to, layer, widths[layer], output, panel); // the biases
                for (std::size_t input = 0; input < widths[layer]; ++input) {
                    to = pack(to, layer, input, output, panel);
                }
            }
        }
        for (std::size_t input = 0; input <= widths[layers - 1]; ++input) {
            *to++ = parameter(layers - 1, input, 0);
        }
    }

    [[nodiscard]] const float *layer(std::size_t which) const noexcept { return data() + start(which); }
    [[nodiscard]] bool huge_pages() const noexcept { return pages_.huge_pages(); }

    // In floats, from the first parameter.
    [[nodiscard]] static constexpr std::size_t start(std::size_t which) noexcept {
        std::size_t at = 0;
        for (std::size_t layer = 0; layer < which; ++layer) {
            at += (widths[layer] + 1) * widths[layer + 1];
        }
        return at;
    }
    static constexpr std::size_t floats = 205'825;

  private:
    [[nodiscard]] float *data() const noexcept { return reinterpret_cast<float *>(pages_.data()); }
    [[nodiscard]] static float *pack(float *to, std::size_t layer, std::size_t input, std::size_t output,
                                     std::size_t panel) noexcept {
        for (std::size_t lane = 0; lane < panel; ++lane) {
            *to++ = parameter(layer, input, output + lane);
        }
        return to;
    }

    Pages pages_;
};
static_assert(Parameters::start(layers) == Parameters::floats);

// The last layer: one output, in sixteen sums whatever the instruction set.
[[nodiscard]] inline float score(const float *in, const float *weights) noexcept {
    constexpr std::size_t width = widths[layers - 1];
    constexpr std::size_t lanes = 16;
    std::array<float, lanes> sums{};
    for (std::size_t input = 0; input < width; input += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            sums[lane] += in[input + lane] * weights[input + lane];
        }
    }
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) {
            sums[lane] += sums[lane + half];
        }
    }
    return 1.0F / (1.0F + std::exp(-(sums[0] + weights[width])));
}

} // namespace perceptron

// The perceptron on the calling thread: done when submit() returns.
class CpuEngine final : public Engine {
  public:
    // Throws std::invalid_argument for a batch that can't be or instructions that this processor lacks.
    explicit CpuEngine(std::size_t max_batch, Isa isa = best_isa(), Backing backing = Backing::heap)
        : isa_(hwtune::checked(isa)), max_batch_(checked(max_batch)), parameters_(isa, backing),
          memory_((max_batch * (feature_width + 1 + 2 * stride) + padding) * sizeof(float), backing) {}

    [[nodiscard]] std::string name() const override { return "cpu (" + std::string(hwtune::name(isa_)) + ")"; }
    [[nodiscard]] std::size_t max_batch() const noexcept override { return max_batch_; }
    [[nodiscard]] float *input(std::size_t) noexcept override { return memory(); }
    [[nodiscard]] const float *output(std::size_t) const noexcept override { return scores(); }
    [[nodiscard]] Isa isa() const noexcept { return isa_; }
    [[nodiscard]] bool huge_pages() const noexcept { return parameters_.huge_pages(); }

    void submit(std::size_t, std::size_t rows) noexcept override {
        rows = std::min(rows, max_batch_);
        float *const even = hidden();
        float *const odd = even + max_batch_ * stride;
        layer(0, memory(), feature_width, rows, even);
        layer(1, even, stride, rows, odd);
        layer(2, odd, stride, rows, even);
        layer(3, even, stride, rows, odd);
        for (std::size_t row = 0; row < rows; ++row) {
            scores()[row] = perceptron::score(odd + row * stride, parameters_.layer(4));
        }
    }
    [[nodiscard]] Status poll(std::size_t) noexcept override { return Status::done; }

  private:
    // A line more than the widest layer: at 2,048 bytes apart, rows would share two sets of the cache.
    static constexpr std::size_t stride = perceptron::widest + 16;
    static constexpr std::size_t padding = 16;

    [[nodiscard]] static std::size_t checked(std::size_t rows) {
        if (rows == 0 || rows > perceptron::max_batch) {
            throw std::invalid_argument("the CPU engine takes batches of 1 to 128 rows");
        }
        return rows;
    }

    void layer(std::size_t which, const float *in, std::size_t in_stride, std::size_t rows, float *out) noexcept {
        using namespace perceptron; // one namespace for each instruction set
        const float *weights = parameters_.layer(which);
        const std::size_t inputs = widths[which];
        const std::size_t outputs = widths[which + 1];
        switch (isa_) {
#if defined(__x86_64__)
        case Isa::avx512: avx512::layer(in, in_stride, rows, weights, inputs, outputs, out, stride); return;
        case Isa::avx2: avx2::layer(in, in_stride, rows, weights, inputs, outputs, out, stride); return;
#else
        case Isa::avx512:
        case Isa::avx2:
#endif
        case Isa::portable: portable::layer(in, in_stride, rows, weights, inputs, outputs, out, stride); return;
        }
    }

    // One block: the rows, the hidden layers twice, the scores; each begins a cache line.
    [[nodiscard]] float *memory() const noexcept { return reinterpret_cast<float *>(memory_.data()); }
    [[nodiscard]] float *hidden() const noexcept { return memory() + max_batch_ * feature_width; }
    [[nodiscard]] float *scores() const noexcept { return hidden() + 2 * max_batch_ * stride; }

    Isa isa_;
    std::size_t max_batch_;
    perceptron::Parameters parameters_;
    Pages memory_;
};

// Scores every row 0.5 at once: what is left of the pipeline's time is the pipeline's own.
class NullEngine final : public Engine {
  public:
    // Throws std::invalid_argument for a batch of 0 or more than 65,536 rows.
    explicit NullEngine(std::size_t max_batch)
        : max_batch_(checked(max_batch)), memory_(max_batch * (feature_width + 1) * sizeof(float)) {
        std::fill_n(scores(), max_batch, 0.5F);
    }

    [[nodiscard]] std::string name() const override { return "null"; }
    [[nodiscard]] std::size_t max_batch() const noexcept override { return max_batch_; }
    [[nodiscard]] float *input(std::size_t) noexcept override { return rows(); }
    [[nodiscard]] const float *output(std::size_t) const noexcept override { return scores(); }
    void submit(std::size_t, std::size_t) noexcept override {}
    [[nodiscard]] Status poll(std::size_t) noexcept override { return Status::done; }

  private:
    [[nodiscard]] static std::size_t checked(std::size_t rows) {
        if (rows == 0 || rows > 65'536) {
            throw std::invalid_argument("the null engine takes batches of 1 to 65,536 rows");
        }
        return rows;
    }
    [[nodiscard]] float *rows() const noexcept { return reinterpret_cast<float *>(memory_.data()); }
    [[nodiscard]] float *scores() const noexcept { return rows() + max_batch_ * feature_width; }

    std::size_t max_batch_;
    Pages memory_;
};

} // namespace hwtune
