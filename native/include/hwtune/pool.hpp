// A fixed number of buffers, made and touched once, to take and give back without allocation. One thread's: what
// crosses to another thread travels in a queue, and comes back through one.

#pragma once

#include "hwtune/pages.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace hwtune {

// T begins as zeros, and is handed out as it was given back: nothing is constructed or cleared.
template <class T>
    requires std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && (alignof(T) <= 4096)
class Pool {
  public:
    // Throws std::invalid_argument for a size that can't be, std::system_error without the memory.
    explicit Pool(std::size_t size, Backing backing = Backing::heap)
        : pages_(bytes(size), backing), free_(size), taken_(size, 0) {
        for (std::size_t i = 0; i < size; ++i) { // the first is taken first
            free_[i] = static_cast<std::uint32_t>(size - 1 - i);
        }
    }

    // The buffer given back last, as it is the likeliest to be in cache; nullptr when all are taken.
    [[nodiscard]] T *take() noexcept {
        if (free_count() == 0) {
            return nullptr;
        }
        const std::uint32_t index = free_[free_count() - 1];
        ++taken_count_;
        taken_[index] = 1;
        return at(index);
    }

    // False, and nothing happens, for what isn't taken from here or was given back before.
    [[nodiscard]] bool give(const T *buffer) noexcept {
        const auto offset = reinterpret_cast<std::uintptr_t>(buffer) - reinterpret_cast<std::uintptr_t>(at(0));
        const std::size_t index = offset / sizeof(T);
        if (offset % sizeof(T) != 0 || index >= size() || taken_[index] == 0) {
            return false;
        }
        taken_[index] = 0;
        free_[free_count()] = static_cast<std::uint32_t>(index);
        --taken_count_;
        return true;
    }

    [[nodiscard]] std::size_t size() const noexcept { return free_.size(); }
    [[nodiscard]] std::size_t free_count() const noexcept { return free_.size() - taken_count_; }
    [[nodiscard]] bool huge_pages() const noexcept { return pages_.huge_pages(); }

  private:
    [[nodiscard]] static std::size_t bytes(std::size_t size) {
        if (size == 0 || size > std::numeric_limits<std::uint32_t>::max() || size > (std::size_t{1} << 47U) / sizeof(T)) {
            throw std::invalid_argument("there can be no pool of " + std::to_string(size) + " buffers");
        }
        return size * sizeof(T);
    }
    [[nodiscard]] T *at(std::size_t index) const noexcept { return reinterpret_cast<T *>(pages_.data()) + index; }

    Pages pages_;
    std::vector<std::uint32_t> free_;  // a stack of free_count() indices
    std::vector<std::uint8_t> taken_;
    std::size_t taken_count_ = 0;
};

} // namespace hwtune
