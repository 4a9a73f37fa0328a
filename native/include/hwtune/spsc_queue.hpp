// A queue from one thread to one other: fixed capacity, wait-free at both ends, nothing allocated after construction.
//
// It is a phase ring. The first 64-bit word of a message carries the parity of its lap in the top bit (as the
// completion queues of NVMe do, NVM Express Base Specification, "Completion Queue Phase Tag"), so a slot says by
// itself whether its message is there: signal and data travel in one cache line, and there is no shared write
// index. The consumer tells what it has released in an index of its own, late and seldom, and the producer reads
// that only when its last copy says that the ring is full.
//
// Order: commit() stores the first word with release, after the fields; front() loads it with acquire. release()
// stores the read index with release, after the fields were read; claim() loads it with acquire before a slot is
// written again. Nothing else is needed, on x86-64 or on AArch64.
//
// Capacity: a power of two from 1, all of it usable. Slots come back when the consumer tells of them: after every
// `publish_every` releases (an eighth of the ring, at most 128) and whenever it finds the ring empty. Until then claim()
// may say full with up to publish_every - 1 slots released.
//
// Both ends fetch lines before they need them, but never one that the other end is at: the producer while there is no
// backlog to speak of, the consumer where it has seen that the messages are there. How the numbers were found:
// docs/queue.md.

#pragma once

#include "hwtune/pages.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace hwtune {

inline constexpr std::size_t cache_line = 64;

// What can travel: plain data of whole 64-bit words, of which the first is a std::uint64_t that leaves its top bit
// to the queue. (That the first member is one can't be checked here.)
template <class T>
concept Message = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0 &&
                  alignof(T) % alignof(std::uint64_t) == 0 && alignof(T) <= 2 * cache_line;

// For a payload without a spare bit: a word of its own in front.
template <class Payload> struct Lapped {
    std::uint64_t lap = 0; // the queue's
    Payload value{};
};

// A message whose size is known at run time only: this word, and as many more as the ring's stride says.
struct AnyMessage {
    std::uint64_t sequence;
};

inline constexpr std::uint64_t phase_bit = std::uint64_t{1} << 63U;

// The first word of a message as its producer gave it to commit().
[[nodiscard]] constexpr std::uint64_t sequence_of(std::uint64_t word) noexcept { return word & ~phase_bit; }

namespace detail {

template <class T> struct IsLapped : std::false_type {};
template <class Payload> struct IsLapped<Lapped<Payload>> : std::true_type {};

// Brings a line here to be written, away from the reader that has it. GCC's own builtin for it is a prefetch for
// reading unless told that the processor has prefetchw; every x86-64 takes the instruction, as a no-op at worst.
inline void prefetch_to_write(const void *line) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*static_cast<const char *>(line)));
#else
    __builtin_prefetch(line, 1, 3);
#endif
}

// Copies the words [from, whole) of a message one by one. Wider loads would wait for narrower stores to leave the
// store buffer (about 10 ns), and fields have just been written by whoever hands a message over.
template <std::size_t from, class T> inline void copy_words(T *to, const T *source) noexcept {
    constexpr std::size_t words = sizeof(T) / sizeof(std::uint64_t);
    auto *target = reinterpret_cast<std::byte *>(to);
    const auto *origin = reinterpret_cast<const std::byte *>(source);
    if constexpr (words <= 16) {
        for (std::size_t i = from; i < words; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, origin + i * sizeof word, sizeof word);
            asm("" : "+r"(word)); // or the compiler joins them again
            std::memcpy(target + i * sizeof word, &word, sizeof word);
        }
    } else {
        std::memcpy(target + from * sizeof(std::uint64_t), origin + from * sizeof(std::uint64_t),
                    sizeof(T) - from * sizeof(std::uint64_t));
    }
}

} // namespace detail

// The ring as it lies in memory, private or shared: no address is in it, so it may be mapped anywhere.
//   offset 0           the read index: messages released so far, as far as told
//   offset slots_at    capacity slots of sizeof(T)
template <Message T> class SpscRing {
  public:
    // Two lines: some processors fetch lines in pairs.
    static constexpr std::size_t slots_at = 2 * cache_line;

    static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
    static_assert(std::atomic_ref<std::uint64_t>::required_alignment <= alignof(T));
    static_assert(slots_at % alignof(T) == 0);

    // Throws std::invalid_argument for a capacity that can't be. `stride`: bytes from one message to the next.
    [[nodiscard]] static std::size_t bytes(std::size_t capacity, std::size_t stride = sizeof(T)) {
        if (!std::has_single_bit(capacity)) {
            throw std::invalid_argument("the capacity of a queue must be a power of two, not " + std::to_string(capacity));
        }
        if (capacity > (std::size_t{1} << 47U) / stride) { // the address space of a process
            throw std::invalid_argument("a queue of " + std::to_string(capacity) + " messages is larger than any memory");
        }
        return slots_at + capacity * stride;
    }

    // `base`: bytes(capacity) of memory, aligned to slots_at, that format() has once been called on.
    SpscRing(std::byte *base, std::size_t capacity, std::size_t stride = sizeof(T)) noexcept
        : base_(base), capacity_(capacity), shift_(63U - static_cast<unsigned>(std::countr_zero(capacity))), stride_(stride) {}

    // Makes the memory an empty ring whose next message has the number `first` (in tests; 0 anywhere else).
    void format(std::uint64_t first = 0) const noexcept {
        read_index().store(first, std::memory_order_relaxed);
        for (std::uint64_t i = 0; i < capacity_; ++i) {
            word(first + i).store(phase(first + i) ^ phase_bit, std::memory_order_relaxed);
        }
    }

    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    // A constant, but for AnyMessage.
    [[nodiscard]] std::size_t stride() const noexcept {
        if constexpr (std::is_same_v<T, AnyMessage>) {
            return stride_;
        } else {
            return sizeof(T);
        }
    }
    [[nodiscard]] T *slot(std::uint64_t number) const noexcept {
        return reinterpret_cast<T *>(base_ + slots_at + (number & (capacity_ - 1)) * stride());
    }
    // The first word of slot(number). T is standard layout, so its address is that of its first member.
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t number) const noexcept {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t *>(slot(number)));
    }
    [[nodiscard]] std::atomic_ref<std::uint64_t> read_index() const noexcept {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t *>(base_));
    }
    // The top bit that message `number` carries: set in the first lap, so that zeroed memory is an empty ring. The
    // parity of the lap is one bit of the number, and the capacity a power of two: it stays right past 2^64.
    [[nodiscard]] std::uint64_t phase(std::uint64_t number) const noexcept { return ~(number << shift_) & phase_bit; }
    [[nodiscard]] std::uint64_t messages_in(std::size_t lines) const noexcept {
        return std::max<std::uint64_t>(1, lines * cache_line / stride());
    }
    // Whether message `number` is there, and with it all before; it is one of the next `capacity` to come.
    [[nodiscard]] bool ready(std::uint64_t number) const noexcept {
        return ((word(number).load(std::memory_order_acquire) ^ (number << shift_)) & phase_bit) != 0;
    }

  private:
    std::byte *base_;
    std::size_t capacity_;
    unsigned shift_; // moves the bit of the lap's parity to the top
    std::size_t stride_;
};

// The end that writes. One thread's, and kept by it: its cursor is nowhere else.
template <Message T> class alignas(cache_line) SpscProducer {
  public:
    // Goes on behind the last message that is in the ring, whoever wrote it.
    explicit SpscProducer(const SpscRing<T> &ring) noexcept : ring_(ring), cursor_(end_of(ring)), limit_(cursor_) {
        static_cast<void>(refresh());
    }
    SpscProducer(SpscProducer &&) noexcept = default;
    SpscProducer &operator=(SpscProducer &&) noexcept = default;
    SpscProducer(const SpscProducer &) = delete;
    SpscProducer &operator=(const SpscProducer &) = delete;
    ~SpscProducer() = default;

    // The slot of the next message, nullptr while the ring is full. Write all of it but its first word, then
    // commit(first word). It holds an old message. Claimed again without commit, it is the same slot.
    [[nodiscard]] T *claim() noexcept {
        if (cursor_ == limit_ && !refresh()) [[unlikely]] {
            return nullptr;
        }
        if (static_cast<std::int64_t>(prefetch_end_ - cursor_) > 0) {
            detail::prefetch_to_write(ring_.slot(cursor_ + ahead()));
        }
        return ring_.slot(cursor_);
    }

    // Publishes the claimed slot with `first_word` as its first member; the top bit of that is lost.
    void commit(std::uint64_t first_word) noexcept {
        ring_.word(cursor_).store(sequence_of(first_word) | ring_.phase(cursor_), std::memory_order_release);
        ++cursor_;
    }
    void commit() noexcept
        requires detail::IsLapped<T>::value
    {
        commit(0);
    }

    [[nodiscard]] bool try_push(const T &message) noexcept
        requires(!std::is_same_v<T, AnyMessage>)
    {
        T *slot = claim();
        if (slot == nullptr) {
            return false;
        }
        put(slot, message);
        return true;
    }

    // How many of them were pushed, from the first; the rest found no room.
    [[nodiscard]] std::size_t push(std::span<const T> messages) noexcept
        requires(!std::is_same_v<T, AnyMessage>)
    {
        if (limit_ - cursor_ < messages.size()) {
            static_cast<void>(refresh());
        }
        const std::size_t count = std::min<std::size_t>(messages.size(), limit_ - cursor_);
        for (const T &message : messages.first(count)) {
            put(claim(), message);
        }
        return count;
    }

    // Messages pushed that the consumer hasn't told of yet: those waiting, and at most publish_every - 1 more.
    // Reads the consumer's line: for now and then.
    [[nodiscard]] std::size_t backlog() noexcept {
        static_cast<void>(refresh());
        return std::min(ring_.capacity(), ring_.capacity() - (limit_ - cursor_)); // should a peer lie
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return ring_.capacity(); }

  private:
    [[nodiscard]] std::uint64_t ahead() const noexcept { return ring_.messages_in(16); }

    [[nodiscard]] static std::uint64_t end_of(const SpscRing<T> &ring) noexcept {
        const std::uint64_t begin = ring.read_index().load(std::memory_order_acquire);
        std::uint64_t end = begin;
        while (end - begin < ring.capacity() && ring.ready(end)) {
            ++end;
        }
        return end;
    }

    void put(T *slot, const T &message) noexcept {
        detail::copy_words<1>(slot, &message);
        std::uint64_t first = 0;
        std::memcpy(&first, &message, sizeof first);
        commit(first);
    }

    // Looks how far the consumer is; whether there is room.
    [[nodiscard]] bool refresh() noexcept {
        limit_ = ring_.read_index().load(std::memory_order_acquire) + ring_.capacity();
        const std::uint64_t room = limit_ - cursor_;
        prefetch_end_ = room > ring_.capacity() / 2 && room > ahead() ? limit_ - ahead() : cursor_;
        return room != 0;
    }

    SpscRing<T> ring_;
    std::uint64_t cursor_;       // number of the next message
    std::uint64_t limit_;        // number of the first message that there is no room for
    std::uint64_t prefetch_end_ = 0; // number of the first message that fetches nothing ahead of it
};

// The end that reads. One thread's, and kept by it.
template <Message T> class alignas(cache_line) SpscConsumer {
  public:
    // Goes on at the first message that hasn't been told as released: what an earlier consumer took and never told
    // of (at most publish_every - 1 messages, if it was killed) comes again.
    explicit SpscConsumer(const SpscRing<T> &ring) noexcept
        : ring_(ring), cursor_(ring.read_index().load(std::memory_order_acquire)), published_(cursor_),
          publish_every_(std::clamp<std::uint64_t>(ring.capacity() / 8, 1, 128)), seen_(cursor_) {}
    SpscConsumer(SpscConsumer &&) noexcept = default;
    SpscConsumer &operator=(SpscConsumer &&) noexcept = default;
    SpscConsumer(const SpscConsumer &) = delete;
    SpscConsumer &operator=(const SpscConsumer &) = delete;
    ~SpscConsumer() = default;

    // The oldest message, nullptr while there is none. Its first member has the queue's bit: sequence_of(). It stays
    // until release().
    [[nodiscard]] const T *front() noexcept {
        if (!ring_.ready(cursor_)) {
            publish();
            seen_ = cursor_;
            return nullptr;
        }
        if (static_cast<std::int64_t>(seen_ - cursor_) > 0) {
            __builtin_prefetch(ring_.slot(cursor_ + ahead()));
        }
        return ring_.slot(cursor_);
    }

    // Gives the slot of front() back; once for each message.
    void release() noexcept {
        ++cursor_;
        if (cursor_ - published_ >= publish_every_) {
            publish();
        }
        if (cursor_ % look_every == 0) {
            look_ahead();
        }
    }

    [[nodiscard]] bool try_pop(T &message) noexcept
        requires(!std::is_same_v<T, AnyMessage>)
    {
        const T *slot = front();
        if (slot == nullptr) {
            return false;
        }
        take(message, *slot);
        release();
        return true;
    }

    // How many were popped: as many as are there, at most messages.size().
    [[nodiscard]] std::size_t pop(std::span<T> messages) noexcept
        requires(!std::is_same_v<T, AnyMessage>)
    {
        std::size_t count = 0;
        while (count < messages.size() && try_pop(messages[count])) {
            ++count;
        }
        return count;
    }

    // Whether n + 1 messages are there: a look ahead that costs one load. n must be below the capacity. It tells the
    // producer nothing; whoever waits by it alone calls publish().
    [[nodiscard]] bool ready(std::size_t n = 0) const noexcept { return ring_.ready(cursor_ + n); }

    // Tells the producer of all that was released; front() does so by itself when it finds nothing.
    void publish() noexcept {
        if (cursor_ != published_) {
            published_ = cursor_;
            ring_.read_index().store(cursor_, std::memory_order_release);
        }
    }
    // Releases after which the producer is told, without being asked.
    [[nodiscard]] std::size_t publish_every() const noexcept { return publish_every_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return ring_.capacity(); }

  private:
    static constexpr std::uint64_t look_every = 32;

    [[nodiscard]] std::uint64_t ahead() const noexcept { return ring_.messages_in(20); }

    // Whether all that would be fetched until the next look is there. To fetch on a guess would take lines away that
    // the producer is about to write.
    void look_ahead() noexcept {
        const std::uint64_t last = ahead() + look_every;
        seen_ = last < ring_.capacity() && ring_.ready(cursor_ + last) ? cursor_ + look_every : cursor_;
    }

    static void take(T &message, const T &slot) noexcept {
        detail::copy_words<1>(&message, &slot);
        std::uint64_t first = 0;
        std::memcpy(&first, &slot, sizeof first);
        first = sequence_of(first);
        std::memcpy(static_cast<void *>(&message), &first, sizeof first);
    }

    SpscRing<T> ring_;
    std::uint64_t cursor_;    // number of the next message
    std::uint64_t published_; // the read index as last told
    std::uint64_t publish_every_;
    std::uint64_t seen_; // number of the first message that fetches nothing ahead of it
};

// The memory of a ring, and its two ends. Must outlive them.
template <Message T> class SpscQueue {
  public:
    // Throws std::invalid_argument unless the capacity is a power of two, std::system_error without the memory.
    explicit SpscQueue(std::size_t capacity, Backing backing = Backing::heap)
        : pages_(SpscRing<T>::bytes(capacity), backing), ring_(pages_.data(), capacity) {
        ring_.format();
    }
    SpscQueue(const SpscQueue &) = delete;
    SpscQueue &operator=(const SpscQueue &) = delete;

    // Each once: a second one throws std::logic_error.
    [[nodiscard]] SpscProducer<T> producer() {
        once(producer_taken_, "producer");
        return SpscProducer<T>(ring_);
    }
    [[nodiscard]] SpscConsumer<T> consumer() {
        once(consumer_taken_, "consumer");
        return SpscConsumer<T>(ring_);
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return ring_.capacity(); }
    // Whether it lies on huge pages, as asked for.
    [[nodiscard]] bool huge_pages() const noexcept { return pages_.huge_pages(); }

  private:
    static void once(bool &taken, const char *end) {
        if (std::exchange(taken, true)) {
            throw std::logic_error(std::string("this queue has given its ") + end + " away");
        }
    }

    Pages pages_;
    SpscRing<T> ring_;
    bool producer_taken_ = false;
    bool consumer_taken_ = false;
};

} // namespace hwtune
