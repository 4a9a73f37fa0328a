#include "hwtune/messages.hpp"
#include "hwtune/shared_queue.hpp"

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

using namespace hwtune;

namespace {

struct Small {
    std::uint64_t sequence;
    std::array<std::uint64_t, 3> body;
};

class Folder {
  public:
    Folder() {
        std::string name = "/dev/shm/hwtune-test-XXXXXX";
        REQUIRE(mkdtemp(name.data()) != nullptr);
        place_ = name;
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    ~Folder() { std::filesystem::remove_all(place_); }
    [[nodiscard]] std::string file(const char *name = "queue") const { return place_ + "/" + name; }

  private:
    std::string place_;
};

template <class Call> int error_of(Call &&call) {
    try {
        static_cast<void>(call());
    } catch (const std::system_error &error) {
        return error.code().value();
    }
    return 0;
}

std::string refusal(const std::string &path) {
    try {
        static_cast<void>(SharedQueue::open(path));
    } catch (const std::invalid_argument &error) {
        return error.what();
    }
    return "taken";
}

// Runs `life` in a process of its own, which ends by SIGKILL.
template <class Life> void killed(Life &&life) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        life();
        raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGKILL);
}

} // namespace

TEST_SUITE_BEGIN("shared_queue");

TEST_CASE("what one end writes the other reads, through mappings of their own") {
    const Folder folder;
    const SharedQueue made = SharedQueue::create(folder.file(), sizeof(Tick), 8);
    const SharedQueue opened = SharedQueue::open(folder.file());
    CHECK(opened.message_bytes() == 64);
    CHECK(opened.capacity() == 8);
    auto producer = made.producer<Tick>();
    auto consumer = opened.consumer<Tick>();
    for (std::uint64_t i = 0; i < 50; ++i) {
        Tick *slot = producer->claim();
        REQUIRE(slot != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(slot) % 64 == 0);
        slot->due = 3 * i;
        producer->commit(i);
        const Tick *seen = consumer->front();
        REQUIRE(seen != nullptr);
        CHECK(seen != slot); // another address, the same memory
        CHECK(sequence_of(seen->sequence) == i);
        CHECK(seen->due == 3 * i);
        consumer->release();
    }
    CHECK(consumer->front() == nullptr);
}

TEST_CASE("a memfd does as well, and can't be cut") {
    const SharedQueue made = SharedQueue::anonymous(sizeof(Small), 4);
    const SharedQueue other = SharedQueue::from_descriptor(made.descriptor());
    auto producer = made.producer<Small>();
    auto consumer = other.consumer<Small>();
    CHECK(producer->try_push({7, {1, 2, 3}}));
    Small out{};
    CHECK(consumer->try_pop(out));
    CHECK(out.body[2] == 3);
    CHECK(ftruncate(made.descriptor(), 0) == -1);
    CHECK(fcntl(made.descriptor(), F_GETFD) >= 0); // still the caller's own
}

TEST_CASE("messages whose size is known at run time") {
    const SharedQueue queue = SharedQueue::anonymous(24, 4);
    auto producer = queue.producer<AnyMessage>();
    auto consumer = queue.consumer<AnyMessage>();
    for (std::uint64_t i = 0; i < 13; ++i) {
        AnyMessage *slot = producer->claim();
        REQUIRE(slot != nullptr);
        reinterpret_cast<std::uint64_t *>(slot)[2] = i;
        producer->commit(i + 100);
        const AnyMessage *seen = consumer->front();
        REQUIRE(seen != nullptr);
        CHECK(sequence_of(seen->sequence) == i + 100);
        CHECK(reinterpret_cast<const std::uint64_t *>(seen)[2] == i);
        consumer->release();
    }
}

TEST_CASE("each end is one process's at a time, and the other end sees how it left") {
    const SharedQueue queue = SharedQueue::anonymous(sizeof(Small), 4);
    auto consumer = queue.consumer<Small>();
    CHECK(consumer.peer() == Peer::absent);
    {
        auto producer = queue.producer<Small>();
        CHECK(consumer.peer() == Peer::present);
        CHECK(producer.peer() == Peer::present);
        CHECK(error_of([&] { return queue.producer<Small>(); }) == EBUSY);
        CHECK(error_of([&] { return queue.consumer<Small>(); }) == EBUSY);
        auto moved = std::move(producer); // the lock goes along
        CHECK(error_of([&] { return queue.producer<Small>(); }) == EBUSY);
    }
    CHECK(consumer.peer() == Peer::closed);
    auto again = queue.producer<Small>();
    CHECK(consumer.peer() == Peer::present);
    again.close();
    CHECK(again.closed());
    CHECK(consumer.peer() == Peer::closed);
    CHECK(name(Peer::crashed) == "crashed");
}

TEST_CASE("a consumer that leaves in order has told of all that it took") {
    const SharedQueue queue = SharedQueue::anonymous(sizeof(Small), 64);
    auto producer = queue.producer<Small>();
    for (std::uint64_t i = 0; i < 5; ++i) {
        REQUIRE(producer->try_push({i, {}}));
    }
    Small out{};
    {
        auto consumer = queue.consumer<Small>();
        REQUIRE(consumer->try_pop(out));
    }
    auto consumer = queue.consumer<Small>();
    REQUIRE(consumer->try_pop(out));
    CHECK(out.sequence == 1);
}

TEST_CASE("a killed producer is seen, and another goes on behind what it had committed") {
    const Folder folder;
    const SharedQueue queue = SharedQueue::create(folder.file(), sizeof(Small), 8);
    auto consumer = queue.consumer<Small>();
    killed([&] {
        static auto producer = SharedQueue::open(folder.file()).producer<Small>();
        for (std::uint64_t i = 0; i < 3; ++i) {
            static_cast<void>(producer->try_push({i, {i, i, i}}));
        }
        producer->claim()->body = {9, 9, 9}; // half a message
    });
    CHECK(consumer.peer() == Peer::crashed);
    auto producer = queue.producer<Small>();
    CHECK(consumer.peer() == Peer::present);
    CHECK(producer->try_push({3, {3, 3, 3}}));
    Small out{};
    for (std::uint64_t i = 0; i < 4; ++i) {
        REQUIRE(consumer->try_pop(out));
        CHECK(out.sequence == i);
        CHECK(out.body[1] == i);
    }
    CHECK_FALSE(consumer->try_pop(out));
}

TEST_CASE("a killed consumer is seen, and its successor misses nothing") {
    const Folder folder;
    const SharedQueue queue = SharedQueue::create(folder.file(), sizeof(Small), 64);
    auto producer = queue.producer<Small>();
    for (std::uint64_t i = 0; i < 20; ++i) {
        REQUIRE(producer->try_push({i, {}}));
    }
    killed([&] {
        static auto consumer = SharedQueue::open(folder.file()).consumer<Small>();
        Small out{};
        for (int i = 0; i < 11; ++i) { // told of every eighth
            static_cast<void>(consumer->try_pop(out));
        }
    });
    CHECK(producer.peer() == Peer::crashed);
    auto consumer = queue.consumer<Small>();
    Small out{};
    for (std::uint64_t i = 8; i < 20; ++i) {
        REQUIRE(consumer->try_pop(out));
        CHECK(out.sequence == i);
    }
}

TEST_CASE("creation is exclusive, private, and leaves nothing behind when it fails") {
    const Folder folder;
    const SharedQueue queue = SharedQueue::create(folder.file(), 64, 4);
    struct stat status {};
    REQUIRE(stat(folder.file().c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    CHECK(error_of([&] { return SharedQueue::create(folder.file(), 64, 4); }) == EEXIST);
    std::filesystem::create_symlink(folder.file("target"), folder.file("link"));
    CHECK(error_of([&] { return SharedQueue::create(folder.file("link"), 64, 4); }) == EEXIST);
    CHECK_FALSE(std::filesystem::exists(folder.file("target")));
    for (const std::size_t capacity : {std::size_t{0}, std::size_t{3}}) {
        CHECK_THROWS_AS(static_cast<void>(SharedQueue::create(folder.file("bad"), 64, capacity)), std::invalid_argument);
    }
    for (const std::size_t size : {std::size_t{0}, std::size_t{12}, std::size_t{1} << 31U}) {
        CHECK_THROWS_AS(static_cast<void>(SharedQueue::create(folder.file("bad"), size, 4)), std::invalid_argument);
    }
    // more than any /dev/shm has
    CHECK(error_of([&] { return SharedQueue::create(folder.file("bad"), 1U << 30U, 1U << 16U); }) != 0);
    CHECK_FALSE(std::filesystem::exists(folder.file("bad")));
}

TEST_CASE("links, pipes, folders and what belongs to others are not opened") {
    const Folder folder;
    static_cast<void>(SharedQueue::create(folder.file(), 64, 4));
    std::filesystem::create_symlink(folder.file(), folder.file("link"));
    CHECK(error_of([&] { return SharedQueue::open(folder.file("link")); }) == ELOOP);
    CHECK(error_of([&] { return SharedQueue::open(folder.file("absent")); }) == ENOENT);
    REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
    CHECK(refusal(folder.file("pipe")).find("not a regular file") != std::string::npos);
    CHECK(error_of([&] { return SharedQueue::from_descriptor(-1); }) == EBADF);
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    CHECK_THROWS_AS(static_cast<void>(SharedQueue::from_descriptor(ends[0])), std::invalid_argument);
    ::close(ends[0]);
    ::close(ends[1]);
    if (geteuid() == 0) {
        REQUIRE(chown(folder.file().c_str(), 12345, 0) == 0);
        CHECK(refusal(folder.file()).find("user 12345") != std::string::npos);
    }
}

TEST_CASE("a file that is damaged, foreign or cut is refused") {
    const Folder folder;
    static_cast<void>(SharedQueue::create(folder.file(), 64, 4));
    std::vector<char> good(4096 + 128 + 4 * 64);
    std::ifstream(folder.file(), std::ios::binary).read(good.data(), static_cast<std::streamsize>(good.size()));
    const auto write = [&](const std::vector<char> &bytes) {
        std::ofstream(folder.file("damaged"), std::ios::binary | std::ios::trunc)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        return refusal(folder.file("damaged"));
    };
    CHECK(write(good) == "taken");
    CHECK(write({}).find("too short") != std::string::npos);
    CHECK(write({good.begin(), good.begin() + 55}).find("too short") != std::string::npos);
    CHECK(write({good.begin(), good.begin() + 56}).find("shorter than its header says") != std::string::npos);
    CHECK(write({good.begin(), good.end() - 1}).find("shorter than its header says") != std::string::npos);
    CHECK(write(std::vector<char>(good.size())).find("not one yet") != std::string::npos);
    for (std::size_t at = 0; at < sizeof(SharedHeader); ++at) { // any one bit
        CAPTURE(at);
        std::vector<char> bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 1);
        CHECK(write(bad) != "taken");
    }
    // a header that is in itself right, and can't be
    const auto with = [&](auto &&change) {
        SharedHeader header;
        std::memcpy(static_cast<void *>(&header), good.data(), sizeof header);
        change(header);
        header.checksum = header.expected_checksum();
        std::vector<char> bad = good;
        std::memcpy(bad.data(), &header, sizeof header);
        return write(bad);
    };
    CHECK(with([](SharedHeader &header) { header.version = 2; }).find("of version 2") != std::string::npos);
    CHECK(with([](SharedHeader &header) { header.capacity = 3; }).find("power of two") != std::string::npos);
    CHECK(with([](SharedHeader &header) { header.capacity = std::uint64_t{1} << 62U; }).find("larger than any") != std::string::npos);
    CHECK(with([](SharedHeader &header) { header.capacity = 1024; }).find("shorter than") != std::string::npos);
    CHECK(with([](SharedHeader &header) { header.message_bytes = 0; }).find("whole words") != std::string::npos);
    CHECK(with([](SharedHeader &header) { header.ring_offset = 0; }).find("another way") != std::string::npos);
}

TEST_CASE("ends of another size are refused, and nothing is held") {
    const SharedQueue queue = SharedQueue::anonymous(64, 4);
    CHECK_THROWS_AS(static_cast<void>(queue.producer<Small>()), std::invalid_argument);
    CHECK(queue.consumer<Tick>().peer() == Peer::absent);
}

TEST_CASE("whatever the peer writes, both ends stay inside") {
    const Folder folder;
    const SharedQueue queue = SharedQueue::create(folder.file(), sizeof(Small), 4);
    auto producer = queue.producer<Small>();
    auto consumer = queue.consumer<Small>();
    const detail::Descriptor file(::open(folder.file().c_str(), O_RDWR));
    for (const std::uint64_t lie : {std::uint64_t{1} << 63U, ~std::uint64_t{0}, std::uint64_t{1} << 20U}) {
        REQUIRE(pwrite(file.get(), &lie, sizeof lie, SharedHeader::ring_at) == sizeof lie); // the read index
        for (int i = 0; i < 20; ++i) {
            static_cast<void>(producer->try_push({0, {}}));
        }
        Small out{};
        for (int i = 0; i < 20; ++i) {
            static_cast<void>(consumer->try_pop(out));
        }
        CHECK(producer->backlog() <= 4);
    }
}

TEST_SUITE_END();
