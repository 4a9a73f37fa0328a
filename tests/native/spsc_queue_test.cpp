#include "hwtune/messages.hpp"
#include "hwtune/poll.hpp"
#include "hwtune/spsc_queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace hwtune;

namespace {

struct Small { // two to a cache line
    std::uint64_t sequence;
    std::array<std::uint64_t, 3> body;
};

struct Odd { // lies across lines, and on no power of two
    std::uint64_t sequence;
    std::array<std::uint64_t, 4> body;
};

struct Large { // copied by memcpy
    std::uint64_t sequence;
    std::array<std::uint64_t, 40> body;
};

// Every word says which message it is of, so that one of another shows.
template <class T> T message(std::uint64_t number) {
    T made{};
    made.sequence = number;
    for (std::size_t i = 0; i < made.body.size(); ++i) {
        made.body[i] = number * 1'000'003 + i;
    }
    return made;
}

template <class T> bool is(const T &seen, std::uint64_t number) {
    bool right = sequence_of(seen.sequence) == number;
    for (std::size_t i = 0; i < seen.body.size(); ++i) {
        right = right && seen.body[i] == number * 1'000'003 + i;
    }
    return right;
}

} // namespace

TEST_SUITE_BEGIN("spsc_queue");

TEST_CASE("capacities are powers of two from 1, and no larger than memory can be") {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{3}, std::size_t{6}, std::size_t{1000},
                                  std::numeric_limits<std::size_t>::max(), std::size_t{1} << 63U, std::size_t{1} << 60U}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(SpscQueue<Small>{bad}, std::invalid_argument);
    }
    for (const std::size_t good : {std::size_t{1}, std::size_t{2}, std::size_t{1024}}) {
        CHECK(SpscQueue<Small>{good}.capacity() == good);
    }
}

TEST_CASE("each end is given away once") {
    SpscQueue<Small> queue(8);
    const auto producer = queue.producer();
    const auto consumer = queue.consumer();
    CHECK_THROWS_AS(static_cast<void>(queue.producer()), std::logic_error);
    CHECK_THROWS_AS(static_cast<void>(queue.consumer()), std::logic_error);
}

TEST_CASE_TEMPLATE("all slots are usable, first in first out, lap after lap", T, Small, Odd, Large) {
    for (const std::size_t capacity : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{64}}) {
        CAPTURE(capacity);
        SpscQueue<T> queue(capacity);
        auto producer = queue.producer();
        auto consumer = queue.consumer();
        std::uint64_t pushed = 0;
        std::uint64_t popped = 0;
        T out{};
        for (int lap = 0; lap < 5; ++lap) {
            CHECK_FALSE(consumer.try_pop(out));
            for (std::size_t i = 0; i < capacity; ++i) {
                REQUIRE(producer.try_push(message<T>(pushed++)));
            }
            CHECK_FALSE(producer.try_push(message<T>(999)));
            CHECK(producer.claim() == nullptr);
            CHECK(producer.backlog() == capacity);
            for (std::size_t i = 0; i < capacity; ++i) {
                REQUIRE(consumer.try_pop(out));
                CHECK(out.sequence == popped); // without the queue's bit
                CHECK(is(out, popped++));
            }
            CHECK(consumer.front() == nullptr); // and with that the producer is told of all of them
            CHECK(producer.backlog() == 0);
        }
    }
}

TEST_CASE("released slots come back after publish_every, or once the ring was seen empty") {
    SpscQueue<Small> queue(64);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    CHECK(consumer.publish_every() == 8); // an eighth
    CHECK(SpscQueue<Small>(65536).consumer().publish_every() == 128); // at most
    CHECK(SpscQueue<Small>(1).consumer().publish_every() == 1);
    for (std::uint64_t i = 0; i < 64; ++i) {
        REQUIRE(producer.try_push(message<Small>(i)));
    }
    for (int i = 0; i < 7; ++i) {
        REQUIRE(consumer.front() != nullptr);
        consumer.release();
    }
    CHECK(producer.claim() == nullptr);
    REQUIRE(consumer.front() != nullptr);
    consumer.release();
    CHECK(producer.claim() != nullptr);
    CHECK(producer.backlog() == 56);

    REQUIRE(consumer.front() != nullptr);
    consumer.release();
    consumer.publish(); // by hand
    CHECK(producer.backlog() == 55);
}

TEST_CASE("fields written into the slot arrive, and an uncommitted slot does not") {
    SpscQueue<Tick> queue(2);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    for (std::uint64_t i = 0; i < 7; ++i) {
        Tick *slot = producer.claim();
        REQUIRE(slot != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(slot) % 64 == 0);
        slot->due = 100 + i;
        slot->bid = 0.5 * static_cast<double>(i);
        slot->aggressor = 1;
        CHECK(consumer.front() == nullptr);
        CHECK(producer.claim() == slot); // nothing has happened yet
        producer.commit(i);
        const Tick *seen = consumer.front();
        REQUIRE(seen == slot);
        CHECK(sequence_of(seen->sequence) == i);
        CHECK(seen->due == 100 + i);
        CHECK(seen->bid == 0.5 * static_cast<double>(i));
        CHECK(seen->aggressor == 1);
        CHECK(consumer.front() == seen);
        consumer.release();
    }
}

TEST_CASE("a decision travels whole") {
    SpscQueue<Decision> queue(4);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    const Decision sent{41, 1, 2, 3, 4, 5, 101.25, 0.75F, 32};
    REQUIRE(producer.try_push(sent));
    Decision got{};
    REQUIRE(consumer.try_pop(got));
    CHECK(std::memcmp(&sent, &got, sizeof sent) == 0);
}

TEST_CASE("the top bit of the first word is the queue's") {
    SpscQueue<Small> queue(2);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    for (int lap = 0; lap < 3; ++lap) { // in laps of either parity
        for (const std::uint64_t first : {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63U}) {
            REQUIRE(producer.try_push(Small{first, {}}));
        }
        Small out{};
        REQUIRE(consumer.try_pop(out));
        CHECK(out.sequence == std::numeric_limits<std::uint64_t>::max() >> 1U);
        REQUIRE(consumer.try_pop(out));
        CHECK(out.sequence == 0);
        CHECK(consumer.front() == nullptr);
    }
}

TEST_CASE("payloads of any bits travel behind a word of the queue's own") {
    using Payload = std::array<std::uint64_t, 2>;
    SpscQueue<Lapped<Payload>> queue(2);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    constexpr std::uint64_t ones = std::numeric_limits<std::uint64_t>::max();
    for (std::uint64_t i = 0; i < 9; ++i) {
        auto *slot = producer.claim();
        REQUIRE(slot != nullptr);
        slot->value = {ones, i};
        producer.commit();
        const auto *seen = consumer.front();
        REQUIRE(seen != nullptr);
        CHECK(seen->value == Payload{ones, i});
        consumer.release();
    }
    struct Bytes {
        std::array<char, 3> text;
    };
    static_assert(sizeof(Lapped<Bytes>) == 16); // whole words by its alignment
    SpscQueue<Lapped<Bytes>> narrow(1);
    auto from = narrow.producer();
    auto to = narrow.consumer();
    REQUIRE(from.try_push({0, {{'a', 'b', 'c'}}}));
    Lapped<Bytes> out{};
    REQUIRE(to.try_pop(out));
    CHECK(out.value.text == std::array<char, 3>{'a', 'b', 'c'});
}

TEST_CASE("a batch goes as far as there is room, and comes as far as there is something") {
    SpscQueue<Small> queue(8);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    std::vector<Small> in;
    for (std::uint64_t i = 0; i < 11; ++i) {
        in.push_back(message<Small>(i));
    }
    std::vector<Small> out(16);
    CHECK(consumer.pop(out) == 0);
    CHECK(producer.push(std::span<const Small>{}) == 0);
    CHECK(producer.push(in) == 8);
    CHECK(producer.push(in) == 0);
    CHECK(consumer.pop(std::span(out).first(5)) == 5);
    CHECK(producer.push(std::span(in).subspan(8)) == 3); // the room of five, around the end
    CHECK(consumer.pop(out) == 6);
    CHECK(is(out[0], 5));
    CHECK(is(out[5], 10));
    CHECK(consumer.pop(out) == 0);
}

TEST_CASE("a look ahead tells how many are there, and takes nothing") {
    SpscQueue<Small> queue(4);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    for (std::uint64_t begin = 0; begin < 12; begin += 3) { // from every slot, in laps of either parity
        CHECK_FALSE(consumer.ready());
        for (std::uint64_t i = 0; i < 3; ++i) {
            REQUIRE(producer.try_push(message<Small>(begin + i)));
        }
        CHECK(consumer.ready());
        CHECK(consumer.ready(2));
        CHECK_FALSE(consumer.ready(3));
        REQUIRE(consumer.front() != nullptr);
        CHECK(is(*consumer.front(), begin));
        std::array<Small, 3> out{};
        CHECK(consumer.pop(out) == 3);
        CHECK(consumer.front() == nullptr);
    }
}

TEST_CASE("numbers run past 2^64 without a trace") {
    for (const std::size_t capacity : {std::size_t{1}, std::size_t{8}}) {
        Pages pages(SpscRing<Small>::bytes(capacity));
        const SpscRing<Small> ring(pages.data(), capacity);
        ring.format(std::numeric_limits<std::uint64_t>::max() - 20);
        SpscProducer<Small> producer(ring);
        SpscConsumer<Small> consumer(ring);
        Small out{};
        for (std::uint64_t i = 0; i < 50; ++i) {
            CHECK_FALSE(consumer.try_pop(out));
            REQUIRE(producer.try_push(message<Small>(i)));
            REQUIRE(consumer.try_pop(out));
            CHECK(is(out, i));
        }
        for (std::uint64_t i = 0; i < capacity; ++i) {
            CHECK(producer.try_push(message<Small>(i)));
        }
        CHECK_FALSE(producer.try_push(message<Small>(0)));
    }
}

TEST_CASE("many laps, at every distance of the two ends") {
    SpscQueue<Small> queue(16);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    std::uint64_t pushed = 0;
    std::uint64_t popped = 0;
    Small out{};
    for (int round = 0; round < 2000; ++round) {
        for (int i = 0; i < round % 17; ++i) {
            pushed += producer.try_push(message<Small>(pushed)) ? 1 : 0;
        }
        for (int i = 0; i < (round * 7) % 19 && consumer.try_pop(out); ++i) {
            REQUIRE(is(out, popped++));
        }
    }
    while (consumer.try_pop(out)) {
        REQUIRE(is(out, popped++));
    }
    CHECK(pushed == popped);
    CHECK(pushed > 10'000);
}

TEST_CASE("new ends go on where the old ones were, at the latest where the consumer told") {
    Pages pages(SpscRing<Small>::bytes(64));
    const SpscRing<Small> ring(pages.data(), 64);
    ring.format();
    {
        SpscProducer<Small> producer(ring);
        SpscConsumer<Small> consumer(ring);
        Small out{};
        for (std::uint64_t i = 0; i < 100; ++i) { // into the second lap
            REQUIRE(producer.try_push(message<Small>(i)));
            if (i < 90) {
                REQUIRE(consumer.try_pop(out)); // it publishes every 8th: 88
            }
        }
        producer.claim()->body[0] = 1; // half written, never committed
    }
    SpscProducer<Small> producer(ring);
    SpscConsumer<Small> consumer(ring);
    CHECK(producer.backlog() == 12);
    REQUIRE(producer.try_push(message<Small>(100)));
    Small out{};
    for (std::uint64_t i = 88; i <= 100; ++i) { // 88 and 89 once more
        REQUIRE(consumer.try_pop(out));
        CHECK(is(out, i));
    }
    CHECK(consumer.front() == nullptr);
}

TEST_CASE("a ring asked for on huge pages works with them or without, and says which") {
    SpscQueue<Small> queue(1024, Backing::huge_pages);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    CHECK(producer.try_push(message<Small>(7)));
    Small out{};
    CHECK(consumer.try_pop(out));
    CHECK(is(out, 7));
    CHECK_FALSE(SpscQueue<Small>(1024).huge_pages());
    const Pages pages(1000, Backing::huge_pages);
    CHECK(pages.size() == (pages.huge_pages() ? std::size_t{2} << 20U : static_cast<std::size_t>(sysconf(_SC_PAGESIZE))));
}

TEST_CASE("memory that can't be had is an error") {
    CHECK_THROWS_AS(Pages{0}, std::system_error);
    CHECK_THROWS_AS(Pages{std::numeric_limits<std::size_t>::max()}, std::system_error);
    CHECK_THROWS_AS(Pages{std::size_t{1} << 60U}, std::system_error);
}

// Message passing (the fields of a message are there when its first word is) and load buffering (the fields read
// are not those of the message that takes the slot next), on a ring so small that slots are written again at once.
TEST_CASE_TEMPLATE("litmus: two threads see each message whole and once", T, Small, Odd, Large) {
    constexpr std::uint64_t messages = 20'000;
    for (const std::size_t capacity : {std::size_t{1}, std::size_t{2}, std::size_t{64}}) {
        CAPTURE(capacity);
        SpscQueue<T> queue(capacity);
        std::thread writer([producer = queue.producer()]() mutable {
            for (std::uint64_t i = 0; i < messages;) {
                if (T *slot = producer.claim()) {
                    const T made = message<T>(i);
                    slot->body = made.body;
                    producer.commit(i++);
                } else {
                    std::this_thread::yield();
                }
            }
        });
        auto consumer = queue.consumer();
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i < messages;) {
            if (const T *slot = consumer.front()) {
                wrong += is(*slot, i++) ? 0 : 1;
                consumer.release();
            } else {
                std::this_thread::yield();
            }
        }
        writer.join();
        CHECK(wrong == 0);
        CHECK(consumer.front() == nullptr);
    }
}

TEST_CASE("litmus: what a look ahead saw is there to the last") {
    constexpr std::uint64_t messages = 50'000;
    SpscQueue<Small> queue(32);
    std::thread writer([producer = queue.producer()]() mutable {
        std::array<Small, 5> batch{};
        for (std::uint64_t i = 0; i < messages;) {
            for (std::uint64_t k = 0; k < batch.size(); ++k) {
                batch[k] = message<Small>(i + k);
            }
            const std::size_t pushed = producer.push(std::span(batch).first(std::min<std::uint64_t>(batch.size(), messages - i)));
            i += pushed;
            if (pushed == 0) {
                std::this_thread::yield();
            }
        }
    });
    auto consumer = queue.consumer();
    std::uint64_t wrong = 0;
    std::array<Small, 7> out{};
    for (std::uint64_t i = 0; i < messages;) {
        const std::size_t want = std::min<std::uint64_t>(out.size(), messages - i);
        if (!consumer.ready(want - 1)) {
            consumer.publish(); // a batch awaited may need the room of what was released before
            std::this_thread::yield();
            continue;
        }
        wrong += consumer.pop(std::span(out).first(want)) == want ? 0 : 1;
        for (std::size_t k = 0; k < want; ++k) {
            wrong += is(out[k], i++) ? 0 : 1;
        }
    }
    writer.join();
    CHECK(wrong == 0);
}

// Store buffering: each side stores (a message; the read index) and then loads what the other has stored (the read
// index; the next message). Both may see the old value, so both say "not yet"; neither may go on saying so.
TEST_CASE("litmus: full and empty seen at the same time pass") {
    constexpr std::uint64_t rounds = 20'000;
    SpscQueue<Small> there(1);
    SpscQueue<Small> back(1);
    std::thread echo([from = there.consumer(), to = back.producer()]() mutable {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            Small got{};
            while (!from.try_pop(got)) {
                std::this_thread::yield();
            }
            while (!to.try_push(got)) {
                std::this_thread::yield();
            }
        }
    });
    auto to = there.producer();
    auto from = back.consumer();
    std::uint64_t wrong = 0;
    std::uint64_t sent = 0;
    for (std::uint64_t i = 0; i < rounds;) {
        if (sent < rounds && to.try_push(message<Small>(sent))) { // up to two on their way, so both rings fill
            ++sent;
        }
        Small got{};
        if (from.try_pop(got)) {
            wrong += is(got, i++) ? 0 : 1;
        } else {
            std::this_thread::yield();
        }
    }
    echo.join();
    CHECK(wrong == 0);
}

TEST_CASE("a poll waits longer once, after a run of messages") {
    Poll poll;
    CHECK(poll.empty() == 1);
    for (int i = 0; i < 7; ++i) {
        poll.found();
    }
    CHECK(poll.empty() == 1);
    for (int i = 0; i < 8; ++i) {
        poll.found();
    }
    CHECK(poll.empty() == 4);
    CHECK(poll.empty() == 1);
}

TEST_SUITE_END();
