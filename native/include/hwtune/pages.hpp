// Zeroed memory of whole pages, every one of them touched before it is handed out: on huge pages if asked for
// and there are some, on ordinary ones otherwise.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace hwtune {

enum class Backing : std::uint8_t { heap, huge_pages };

class Pages {
  public:
    // Throws std::system_error where there isn't so much memory. The pages are those of the NUMA node of the
    // calling thread (first touch), unless its policy says otherwise.
    explicit Pages(std::size_t bytes, Backing backing = Backing::heap) {
        if (backing == Backing::huge_pages && map(bytes, huge_page, MAP_HUGETLB | huge_2mb)) {
            huge_ = true;
            return;
        }
        if (!map(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), 0)) {
            throw std::system_error(errno, std::generic_category(), "cannot get " + std::to_string(bytes) + " bytes of memory");
        }
    }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    Pages(Pages &&other) noexcept
        : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), huge_(other.huge_) {}
    Pages &operator=(Pages &&) = delete;
    ~Pages() {
        if (base_ != nullptr) {
            munmap(base_, bytes_);
        }
    }

    [[nodiscard]] std::byte *data() const noexcept { return static_cast<std::byte *>(base_); }
    // At least what was asked for: rounded up to whole pages.
    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
    [[nodiscard]] bool huge_pages() const noexcept { return huge_; }

  private:
    static constexpr std::size_t huge_page = std::size_t{2} << 20U;
    static constexpr int huge_2mb = 21 << 26; // MAP_HUGE_2MB of linux/mman.h: log2 of the size, shifted by MAP_HUGE_SHIFT

    // False with errno set where the kernel refuses.
    [[nodiscard]] bool map(std::size_t bytes, std::size_t page, int flags) noexcept {
        if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2) {
            errno = bytes == 0 ? EINVAL : ENOMEM;
            return false;
        }
        const std::size_t whole = (bytes + page - 1) / page * page;
        void *base = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (base == MAP_FAILED) {
            return false;
        }
        if (!touch(static_cast<std::byte *>(base), whole)) {
            const int error = errno;
            munmap(base, whole);
            errno = error;
            return false;
        }
        base_ = base;
        bytes_ = whole;
        return true;
    }

    // Asking first turns a cgroup's limit on huge pages into an error; a plain write would die of SIGBUS.
    [[nodiscard]] static bool touch(std::byte *base, std::size_t bytes) noexcept {
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE, Linux 5.14 (madvise(2))
        if (madvise(base, bytes, populate_write) == 0) {
            return true;
        }
        if (errno != EINVAL) {
            return false;
        }
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        for (std::size_t at = 0; at < bytes; at += page) {
            *static_cast<volatile std::byte *>(base + at) = std::byte{0};
        }
        return true;
    }

    void *base_ = nullptr;
    std::size_t bytes_ = 0;
    bool huge_ = false;
};

} // namespace hwtune
