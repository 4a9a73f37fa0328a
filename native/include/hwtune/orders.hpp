// The last stage: a decision becomes a message of fixed size, and a sink takes it.

#pragma once

#include "hwtune/messages.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <netdb.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace hwtune {

// 48 bytes, little-endian, as they go out:
//   0  char[4]   "HWTO"
//   4  uint16    version 1
//   6  uint8     side: 'B', 'S', or 'N' for no order
//   7  uint8     0
//   8  uint64    sequence of the tick
//  16  uint64    time of the decision, ticks of the run's clock
//  24  int64     price in units of 10^-4
//  32  uint32    quantity
//  36  float32   score
//  40  uint64    0
inline constexpr std::size_t order_size = 48;
using OrderMessage = std::array<std::byte, order_size>;

namespace detail {

template <class T> void put(OrderMessage &message, std::size_t offset, T value) noexcept {
    static_assert(std::endian::native == std::endian::little, "written for little-endian machines");
    std::memcpy(message.data() + offset, &value, sizeof value);
}

} // namespace detail

// Buys above 0.55, sells below 0.45, one lot for each hundredth beyond.
inline void encode(const Decision &decision, std::uint64_t sequence, OrderMessage &message) noexcept {
    const float away = decision.score - 0.5F;
    const char side = away > 0.05F ? 'B' : (away < -0.05F ? 'S' : 'N');
    const auto lots = side == 'N' ? 0U : static_cast<std::uint32_t>(std::fabs(away) * 100.0F);
    detail::put(message, 0, std::array<char, 4>{'H', 'W', 'T', 'O'});
    detail::put(message, 4, std::uint16_t{1});
    detail::put(message, 6, side);
    detail::put(message, 7, std::uint8_t{0});
    detail::put(message, 8, sequence);
    detail::put(message, 16, decision.scored);
    detail::put(message, 24, static_cast<std::int64_t>(std::llrint(decision.price * 1e4)));
    detail::put(message, 32, lots);
    detail::put(message, 36, decision.score);
    detail::put(message, 40, std::uint64_t{0});
}

// Where messages go. Memory: a ring that holds the last of them. UDP: one datagram each, from a connected
// socket; what the kernel would not take at once is counted, never waited for.
class OrderSink {
  public:
    explicit OrderSink(std::size_t kept = 1024) : ring_(std::bit_ceil(kept < 1 ? std::size_t{1} : kept)) {}

    // `host` is a numeric address. Throws std::system_error, std::invalid_argument.
    OrderSink(const std::string &host, std::uint16_t port) : OrderSink(1) {
        addrinfo hints{};
        hints.ai_socktype = SOCK_DGRAM;
        hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
        addrinfo *found = nullptr;
        if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0 || found == nullptr) {
            throw std::invalid_argument(host + " is not a numeric address");
        }
        socket_ = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int refused = socket_ < 0 ? -1 : ::connect(socket_, found->ai_addr, found->ai_addrlen);
        const int error = errno;
        freeaddrinfo(found);
        if (refused != 0) {
            close();
            throw std::system_error(error, std::generic_category(), "cannot send to " + host);
        }
    }
    OrderSink(const OrderSink &) = delete;
    OrderSink &operator=(const OrderSink &) = delete;
    ~OrderSink() { close(); }

    void send(const Decision &decision, std::uint64_t sequence) noexcept {
        OrderMessage &message = ring_[taken_ & (ring_.size() - 1)];
        encode(decision, sequence, message);
        ++taken_;
        if (socket_ >= 0 && ::send(socket_, message.data(), message.size(), MSG_NOSIGNAL) !=
                                static_cast<ssize_t>(message.size())) {
            ++failed_;
        }
    }

    [[nodiscard]] std::uint64_t sent() const noexcept { return taken_ - failed_; }
    [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }
    // The newest message; all zeros before the first.
    [[nodiscard]] const OrderMessage &last() const noexcept {
        return ring_[(taken_ == 0 ? 0 : taken_ - 1) & (ring_.size() - 1)];
    }

  private:
    void close() noexcept {
        if (socket_ >= 0) {
            ::close(socket_);
            socket_ = -1;
        }
    }

    std::vector<OrderMessage> ring_;
    std::uint64_t taken_ = 0;
    std::uint64_t failed_ = 0;
    int socket_ = -1;
};

} // namespace hwtune
