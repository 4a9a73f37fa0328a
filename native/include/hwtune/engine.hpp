// The seam of inference: what turns feature rows into scores. The pipeline writes rows straight into an engine's
// buffer, submits it, and polls; an engine that computes at once has done so when submit() returns.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hwtune {

inline constexpr std::size_t feature_width = 64;

class Engine {
  public:
    enum class Status : std::uint8_t { busy, done, failed };

    Engine() = default;
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    virtual ~Engine() = default;

    [[nodiscard]] virtual std::string name() const = 0;
    // Rows that one submit takes at most.
    [[nodiscard]] virtual std::size_t max_batch() const noexcept = 0;
    // Batches that may be under way at once, each with buffers of its own.
    [[nodiscard]] virtual std::size_t slots() const noexcept { return 1; }

    // max_batch() rows of feature_width floats, one after the other, 64-byte aligned, touched beforehand.
    [[nodiscard]] virtual float *input(std::size_t slot) noexcept = 0;
    // max_batch() scores from 0 to 1; valid from the poll that says done until the slot's next submit.
    [[nodiscard]] virtual const float *output(std::size_t slot) const noexcept = 0;

    // Once on the thread that submits and polls, before it does. What goes wrong is told by poll().
    virtual void attach() noexcept {}
    // The measured section begins: figures of the engine's own begin anew.
    virtual void measured() noexcept {}

    // The hot path: no allocation, no lock, no system call of their own.
    virtual void submit(std::size_t slot, std::size_t rows) noexcept = 0;
    [[nodiscard]] virtual Status poll(std::size_t slot) noexcept = 0;

    // Why it failed, one sentence; read once poll() said so.
    [[nodiscard]] virtual std::string error() const { return {}; }
};

} // namespace hwtune
