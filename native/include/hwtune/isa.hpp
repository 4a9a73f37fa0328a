// The instruction sets that hot code is written for: the wheel is built for the baseline and chooses when it runs.

#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hwtune {

enum class Isa : std::uint8_t { portable, avx2, avx512 };
inline constexpr std::array all_isas{Isa::portable, Isa::avx2, Isa::avx512};

[[nodiscard]] constexpr std::string_view name(Isa isa) noexcept {
    return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "portable";
}

// Whether this processor, and the kernel with its registers, can.
[[nodiscard]] inline bool available([[maybe_unused]] Isa isa) noexcept {
#if defined(__x86_64__)
    switch (isa) {
    case Isa::avx512: return __builtin_cpu_supports("avx512f") != 0;
    case Isa::avx2: return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case Isa::portable: return true;
    }
    return false;
#else
    return isa == Isa::portable; // NEON is in the baseline of AArch64
#endif
}

[[nodiscard]] inline Isa best_isa() noexcept {
    return available(Isa::avx512) ? Isa::avx512 : available(Isa::avx2) ? Isa::avx2 : Isa::portable;
}

// Throws std::invalid_argument for what is none, or none of this processor's.
[[nodiscard]] inline Isa checked(Isa isa) {
    if (!available(isa)) {
        throw std::invalid_argument("this processor lacks the instructions of " + std::string(name(isa)));
    }
    return isa;
}
[[nodiscard]] inline Isa isa_named(std::string_view wanted) {
    for (const Isa isa : all_isas) {
        if (name(isa) == wanted) {
            return checked(isa);
        }
    }
    throw std::invalid_argument("isa must be portable, avx2 or avx512, not '" + std::string(wanted) + "'");
}

} // namespace hwtune
