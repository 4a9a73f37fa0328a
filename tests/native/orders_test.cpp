// Messages of the last stage, byte by byte, and where they go.

#include "hwtune/orders.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <vector>

using namespace hwtune;

namespace {

Decision decision_of(float score, double price = 100.25) {
    Decision decision{};
    decision.scored = 0x0102030405060708U;
    decision.price = price;
    decision.score = score;
    return decision;
}

std::vector<int> bytes(const OrderMessage &message) {
    std::vector<int> found;
    for (const std::byte byte : message) {
        found.push_back(std::to_integer<int>(byte));
    }
    return found;
}

} // namespace

TEST_SUITE("orders") {
    TEST_CASE("an order as it goes out") {
        OrderMessage message{};
        encode(decision_of(0.75F), 0x1122, message);
        // price 1,002,500 = 0xF4C04; 25 lots for 0.25 above the middle; 0.75 as a float is 0x3F400000
        CHECK(bytes(message) == std::vector<int>{'H', 'W', 'T', 'O', 1,    0,    'B',  0,    0x22, 0x11, 0, 0, 0, 0, 0, 0,
                                                 8,   7,   6,   5,   4,    3,    2,    1,    0x04, 0x4C, 0x0F, 0, 0, 0, 0, 0,
                                                 25,  0,   0,   0,   0x00, 0x00, 0x40, 0x3F, 0,    0,    0, 0, 0, 0, 0, 0});
    }

    TEST_CASE("a low score sells, one in the middle does nothing") {
        OrderMessage message{};
        encode(decision_of(0.25F), 1, message);
        CHECK(bytes(message)[6] == 'S');
        CHECK(bytes(message)[32] == 25);
        encode(decision_of(0.5F), 1, message);
        CHECK(bytes(message)[6] == 'N');
        CHECK(bytes(message)[32] == 0);
    }

    TEST_CASE("memory keeps the newest") {
        OrderSink sink(2);
        CHECK(bytes(sink.last())[0] == 0);
        for (std::uint64_t i = 1; i <= 5; ++i) {
            sink.send(decision_of(0.75F), i);
        }
        CHECK(sink.sent() == 5);
        CHECK(sink.failed() == 0);
        CHECK(bytes(sink.last())[8] == 5);
    }

    TEST_CASE("UDP: one datagram for each order") {
        const int receiver = socket(AF_INET, SOCK_DGRAM, 0);
        REQUIRE(receiver >= 0);
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(bind(receiver, reinterpret_cast<sockaddr *>(&here), sizeof here) == 0);
        socklen_t length = sizeof here;
        REQUIRE(getsockname(receiver, reinterpret_cast<sockaddr *>(&here), &length) == 0);

        OrderSink sink("127.0.0.1", ntohs(here.sin_port));
        sink.send(decision_of(0.75F), 41);
        sink.send(decision_of(0.75F), 42);
        CHECK(sink.sent() == 2);
        std::array<std::byte, 128> got{};
        CHECK(recv(receiver, got.data(), got.size(), 0) == 48);
        CHECK(recv(receiver, got.data(), got.size(), 0) == 48);
        CHECK(std::to_integer<int>(got[8]) == 42);
        close(receiver);
        // nobody listens any more: the kernel says so at one of the next, and that is counted
        sink.send(decision_of(0.75F), 43);
        sink.send(decision_of(0.75F), 44);
        CHECK(sink.sent() + sink.failed() == 4);
        CHECK(sink.failed() >= 1);
    }

    TEST_CASE("an address that is none is refused") {
        CHECK_THROWS_AS(OrderSink("localhost.", 1), std::invalid_argument);
        CHECK_THROWS_AS(OrderSink("", 1), std::invalid_argument);
    }
}
