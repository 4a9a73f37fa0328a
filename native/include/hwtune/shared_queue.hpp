// The queue of spsc_queue.hpp between two processes: in a file of /dev/shm that both open by its path, or in a memfd
// of which one hands the descriptor to the other.
//
//   offset 0      SharedHeader: what the rest is, with a checksum; written once
//   offset 1024   what became of each end, a cache line each
//   offset 4096   the SpscRing
//
// Each end holds a lock on a byte of the file, through an open file description of its own (fcntl(2), F_OFD_SETLK).
// The kernel drops it when the process ends, however it ends; so nobody can take an end that is in use, and a peer
// that has died is told from one that is idle. (A child that was forked without exec keeps its parent's descriptors,
// and with them the lock, until it ends.)
//
// After a crash the ring is whole, as a message is there or isn't: open it again and take the end that was lost. The
// producer goes on behind the last committed message; the consumer may see the last publish_every() - 1 messages again
// that its predecessor had released.
//
// A peer is trusted with the content, not with memory: whatever it writes, no access leaves the mapping. Truncating
// the file kills both with SIGBUS, which only its owner can do to a file, and nobody to a memfd (it is sealed). Files
// of other users are refused.

#pragma once

#include "hwtune/spsc_queue.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace hwtune {

// absent: never came; present: holds its end now; closed: left in order; crashed: gone without a word.
enum class Peer : std::uint8_t { absent, present, closed, crashed };

[[nodiscard]] constexpr std::string_view name(Peer peer) noexcept {
    constexpr std::array<std::string_view, 4> names{"absent", "present", "closed", "crashed"};
    return names[static_cast<std::size_t>(peer)];
}

struct SharedHeader {
    static constexpr std::array<char, 8> magic_word{'h', 'w', 't', 'u', 'n', 'e', 'q', '\n'};
    static constexpr std::uint32_t current = 1;
    static constexpr std::uint64_t ends_at = 1024;
    static constexpr std::uint64_t ring_at = 4096;
    static constexpr std::uint64_t largest_message = std::uint64_t{1} << 30U;

    std::array<char, 8> magic = magic_word;
    std::uint32_t version = current;
    std::uint32_t byte_order = 0x01020304;
    std::uint64_t message_bytes = 0;
    std::uint64_t capacity = 0;
    std::uint64_t ring_offset = ring_at;
    std::uint64_t slots_offset = ring_at + SpscRing<AnyMessage>::slots_at;
    std::uint64_t checksum = 0; // of all before it

    // FNV-1a (Fowler, Noll, Vo), 64 bits.
    [[nodiscard]] std::uint64_t expected_checksum() const noexcept {
        std::array<unsigned char, sizeof(SharedHeader)> bytes{};
        std::memcpy(bytes.data(), this, sizeof *this);
        std::uint64_t hash = 0xcbf29ce484222325U;
        for (std::size_t i = 0; i < sizeof *this - sizeof checksum; ++i) {
            hash = (hash ^ bytes[i]) * 0x100000001b3U;
        }
        return hash;
    }
};
static_assert(std::is_trivially_copyable_v<SharedHeader> && sizeof(SharedHeader) == 56);

namespace detail {

[[noreturn]] inline void fail(int error, const std::string &what) {
    throw std::system_error(error, std::generic_category(), what);
}

class Descriptor {
  public:
    explicit Descriptor(int number = -1) noexcept : number_(number) {}
    Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor &operator=(Descriptor &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }
    [[nodiscard]] int get() const noexcept { return number_; }

    // The same file through a new open file description, with locks of its own.
    [[nodiscard]] static Descriptor reopened(int number) {
        const std::string link = "/proc/self/fd/" + std::to_string(number);
        Descriptor again(::open(link.c_str(), O_RDWR | O_CLOEXEC));
        if (again.get() < 0) {
            fail(errno, "cannot open the queue again through " + link);
        }
        return again;
    }

  private:
    int number_;
};

// A shared mapping with all its pages present.
class Mapping {
  public:
    Mapping(int descriptor, std::size_t bytes)
        : base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0)), bytes_(bytes) {
        if (base_ == MAP_FAILED) {
            fail(errno, "cannot map " + std::to_string(bytes) + " bytes of a queue");
        }
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE, Linux 5.14: to be written without a fault, too
        if (madvise(base_, bytes, populate_write) != 0 && errno != EINVAL) {
            const int error = errno;
            munmap(base_, bytes);
            fail(error, "cannot get the memory of a queue");
        }
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    ~Mapping() { munmap(base_, bytes_); }
    [[nodiscard]] std::byte *at(std::uint64_t offset) const noexcept { return static_cast<std::byte *>(base_) + offset; }

  private:
    void *base_;
    std::size_t bytes_;
};

enum class End : std::uint8_t { producer, consumer };

// One end as the other sees it: its lock, and a word on how it left.
class EndState {
  public:
    EndState(const Mapping &mapping, End end) noexcept
        : word_(*reinterpret_cast<std::uint32_t *>(mapping.at(SharedHeader::ends_at + cache_line * index(end)))),
          byte_(static_cast<off_t>(index(end))) {}

    [[nodiscard]] bool lock(int descriptor) const {
        struct flock range = whole(F_WRLCK);
        if (fcntl(descriptor, F_OFD_SETLK, &range) == 0) {
            return true;
        }
        if (errno != EAGAIN && errno != EACCES) {
            fail(errno, "cannot lock an end of the queue");
        }
        return false;
    }
    [[nodiscard]] Peer seen_from(int descriptor) const {
        struct flock range = whole(F_WRLCK);
        if (fcntl(descriptor, F_OFD_GETLK, &range) != 0) {
            fail(errno, "cannot ask for the lock of the queue's other end");
        }
        if (range.l_type != F_UNLCK) {
            return Peer::present;
        }
        switch (word_.load(std::memory_order_acquire)) {
        case never:
            return Peer::absent;
        case left:
            return Peer::closed;
        default:
            return Peer::crashed;
        }
    }
    void came() const noexcept { word_.store(in_use, std::memory_order_release); }
    void leaves() const noexcept { word_.store(left, std::memory_order_release); }

  private:
    static constexpr std::uint32_t never = 0;
    static constexpr std::uint32_t in_use = 1;
    static constexpr std::uint32_t left = 2;

    [[nodiscard]] static constexpr std::size_t index(End end) noexcept { return static_cast<std::size_t>(end); }
    [[nodiscard]] struct flock whole(short type) const noexcept {
        struct flock range {};
        range.l_type = type;
        range.l_whence = SEEK_SET;
        range.l_start = byte_;
        range.l_len = 1;
        return range;
    }

    std::atomic_ref<std::uint32_t> word_;
    off_t byte_;
};

} // namespace detail

// One end of a shared queue, and the lock that makes it the only one. `Handle` is SpscProducer or SpscConsumer.
template <class Handle> class SharedEnd {
  public:
    SharedEnd(std::shared_ptr<const detail::Mapping> mapping, detail::Descriptor descriptor, detail::End end, Handle &&handle)
        : mapping_(std::move(mapping)), descriptor_(std::move(descriptor)), mine_(*mapping_, end),
          other_(*mapping_, end == detail::End::producer ? detail::End::consumer : detail::End::producer),
          handle_(std::move(handle)) {}
    SharedEnd(SharedEnd &&) noexcept = default;
    SharedEnd &operator=(SharedEnd &&) = delete;
    SharedEnd(const SharedEnd &) = delete;
    SharedEnd &operator=(const SharedEnd &) = delete;
    ~SharedEnd() { close(); }

    [[nodiscard]] Handle &operator*() noexcept { return handle_; }
    [[nodiscard]] Handle *operator->() noexcept { return &handle_; }

    // A system call: ask when nothing has happened for a while. Throws std::system_error.
    [[nodiscard]] Peer peer() const { return other_.seen_from(descriptor_.get()); }

    // Leaves in order: the other end sees Peer::closed. The handle must not be used again.
    void close() noexcept {
        if (descriptor_.get() >= 0) {
            if constexpr (requires(Handle &handle) { handle.publish(); }) {
                handle_.publish();
            }
            mine_.leaves();
            descriptor_ = detail::Descriptor(); // and with it the lock
        }
    }
    [[nodiscard]] bool closed() const noexcept { return descriptor_.get() < 0; }

  private:
    std::shared_ptr<const detail::Mapping> mapping_;
    detail::Descriptor descriptor_;
    detail::EndState mine_;
    detail::EndState other_;
    Handle handle_;
};
template <Message T> using SharedProducer = SharedEnd<SpscProducer<T>>;
template <Message T> using SharedConsumer = SharedEnd<SpscConsumer<T>>;

// A queue in shared memory. Throws std::system_error where the kernel refuses, std::invalid_argument for sizes that
// can't be and for files that aren't such a queue.
class SharedQueue {
  public:
    // A new file, for this user alone; it is an error if there is anything of that name, a link included. It stays
    // until it is unlinked.
    [[nodiscard]] static SharedQueue create(const std::string &path, std::size_t message_bytes, std::size_t capacity) {
        const SharedHeader header = header_of(message_bytes, capacity);
        detail::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (file.get() < 0) {
            detail::fail(errno, "cannot create the queue " + path);
        }
        try {
            return made(std::move(file), header);
        } catch (...) {
            unlink(path.c_str());
            throw;
        }
    }

    // A queue without a name: hand descriptor() to the other process.
    [[nodiscard]] static SharedQueue anonymous(std::size_t message_bytes, std::size_t capacity) {
        const SharedHeader header = header_of(message_bytes, capacity);
        detail::Descriptor file(memfd_create("hwtune-queue", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (file.get() < 0) {
            detail::fail(errno, "cannot make a memfd for a queue");
        }
        SharedQueue queue = made(std::move(file), header);
        if (fcntl(queue.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
            detail::fail(errno, "cannot seal the size of a queue");
        }
        return queue;
    }

    [[nodiscard]] static SharedQueue open(const std::string &path) {
        // Not to wait for a writer where it is a pipe.
        detail::Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
        if (file.get() < 0) {
            detail::fail(errno, "cannot open the queue " + path);
        }
        return checked(std::move(file), path);
    }

    // The descriptor stays the caller's.
    [[nodiscard]] static SharedQueue from_descriptor(int descriptor) {
        struct stat status {};
        if (fstat(descriptor, &status) != 0) {
            detail::fail(errno, "descriptor " + std::to_string(descriptor) + " is no queue");
        }
        const std::string name = "descriptor " + std::to_string(descriptor);
        must_be_file(status, name); // before it is opened again: that has effects on devices
        return checked(detail::Descriptor::reopened(descriptor), name);
    }

    // Throws std::system_error (EBUSY) while somebody has that end, std::invalid_argument if T is of another size.
    template <Message T> [[nodiscard]] SharedProducer<T> producer() const {
        return taken<T, SpscProducer<T>>(detail::End::producer, "producer");
    }
    template <Message T> [[nodiscard]] SharedConsumer<T> consumer() const {
        return taken<T, SpscConsumer<T>>(detail::End::consumer, "consumer");
    }

    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
    [[nodiscard]] std::size_t message_bytes() const noexcept { return header_.message_bytes; }
    [[nodiscard]] std::size_t capacity() const noexcept { return header_.capacity; }

  private:
    SharedQueue(detail::Descriptor file, const SharedHeader &header)
        : file_(std::move(file)), header_(header),
          mapping_(std::make_shared<const detail::Mapping>(file_.get(), total_bytes(header))) {}

    [[nodiscard]] static std::size_t total_bytes(const SharedHeader &header) {
        return SharedHeader::ring_at + SpscRing<AnyMessage>::bytes(header.capacity, header.message_bytes);
    }

    [[nodiscard]] static SharedHeader header_of(std::size_t message_bytes, std::size_t capacity) {
        if (message_bytes == 0 || message_bytes % sizeof(std::uint64_t) != 0 || message_bytes > SharedHeader::largest_message) {
            throw std::invalid_argument("a message must have whole words of 8 bytes, up to 1 GiB, not " +
                                        std::to_string(message_bytes) + " bytes");
        }
        SharedHeader header;
        header.message_bytes = message_bytes;
        header.capacity = capacity;
        header.checksum = header.expected_checksum();
        static_cast<void>(total_bytes(header)); // throws for a capacity that can't be
        return header;
    }

    [[nodiscard]] static SharedQueue made(detail::Descriptor file, const SharedHeader &header) {
        // Allocated now: later, a full /dev/shm would be a SIGBUS.
        const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(total_bytes(header)));
        if (error != 0) {
            detail::fail(error, "cannot get " + std::to_string(total_bytes(header)) + " bytes for a queue");
        }
        SharedQueue queue(std::move(file), header);
        queue.ring<AnyMessage>().format();
        // The magic word last: who sees it sees all.
        std::memcpy(queue.mapping_->at(sizeof header.magic), reinterpret_cast<const std::byte *>(&header) + sizeof header.magic,
                    sizeof header - sizeof header.magic);
        std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t *>(queue.mapping_->at(0)))
            .store(std::bit_cast<std::uint64_t>(header.magic), std::memory_order_release);
        return queue;
    }

    static void must_be_file(const struct stat &status, const std::string &name) {
        if (!S_ISREG(status.st_mode)) {
            throw std::invalid_argument(name + " is no queue: it is not a regular file");
        }
        if (status.st_uid != geteuid()) {
            throw std::invalid_argument(name + " belongs to user " + std::to_string(status.st_uid) + ", not to this one");
        }
    }

    [[nodiscard]] static SharedQueue checked(detail::Descriptor file, const std::string &name) {
        struct stat status {};
        if (fstat(file.get(), &status) != 0) {
            detail::fail(errno, "cannot look at " + name);
        }
        must_be_file(status, name);
        SharedHeader header; // read, not mapped: what was checked can't change afterwards
        if (pread(file.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
            throw std::invalid_argument(name + " is no queue: it is too short");
        }
        if (header.magic != SharedHeader::magic_word) {
            throw std::invalid_argument(name + " is no queue, or not one yet");
        }
        if (header.version != SharedHeader::current || header.byte_order != SharedHeader{}.byte_order) {
            throw std::invalid_argument(name + " is a queue of version " + std::to_string(header.version) +
                                        ", and this is version " + std::to_string(SharedHeader::current));
        }
        if (header.checksum != header.expected_checksum()) {
            throw std::invalid_argument(name + " has a damaged header");
        }
        const SharedHeader expected = header_of(header.message_bytes, header.capacity); // throws where they can't be
        if (header.checksum != expected.checksum) {
            throw std::invalid_argument(name + " has its queue laid out in another way");
        }
        if (static_cast<std::uint64_t>(status.st_size) < total_bytes(header)) {
            throw std::invalid_argument(name + " is shorter than its header says");
        }
        return SharedQueue(std::move(file), header);
    }

    template <Message T> [[nodiscard]] SpscRing<T> ring() const {
        return SpscRing<T>(mapping_->at(SharedHeader::ring_at), header_.capacity, header_.message_bytes);
    }

    template <Message T, class Handle> [[nodiscard]] SharedEnd<Handle> taken(detail::End end, const char *name) const {
        if (!std::is_same_v<T, AnyMessage> && sizeof(T) != header_.message_bytes) {
            throw std::invalid_argument("the queue's messages have " + std::to_string(header_.message_bytes) + " bytes, not " +
                                        std::to_string(sizeof(T)));
        }
        detail::Descriptor mine = detail::Descriptor::reopened(file_.get());
        const detail::EndState state(*mapping_, end);
        if (!state.lock(mine.get())) {
            detail::fail(EBUSY, std::string("the queue already has a ") + name);
        }
        state.came();
        return SharedEnd<Handle>(mapping_, std::move(mine), end, Handle(ring<T>()));
    }

    detail::Descriptor file_;
    SharedHeader header_;
    std::shared_ptr<const detail::Mapping> mapping_;
};

} // namespace hwtune
