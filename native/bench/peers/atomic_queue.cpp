#include "queue_bench.hpp"

#include <atomic_queue/atomic_queue.h>

namespace {

template <class T, std::size_t capacity> class AtomicQueue {
  public:
    class Sender {
      public:
        explicit Sender(AtomicQueue &queue) : queue_(queue.queue_) {}
        template <class Fill, class Full> bool send(std::uint64_t sequence, Fill fill, Full full) {
            T message;
            message.sequence = sequence;
            fill(message);
            while (!queue_.try_push(message)) {
                if (!full()) {
                    return false;
                }
            }
            return true;
        }

      private:
        decltype(AtomicQueue::queue_) &queue_;
    };
    class Receiver {
      public:
        explicit Receiver(AtomicQueue &queue) : queue_(queue.queue_) {}
        template <class Use> bool receive(Use use) { T message;
            if (!queue_.try_pop(message)) {
                return false;
            }
            use(message);
            return true; }

      private:
        decltype(AtomicQueue::queue_) &queue_;
    };

  private:
    alignas(128) atomic_queue::AtomicQueue2<T, capacity, true, true, false, true> queue_; // its last parameter: SPSC
};

HWTUNE_PEER("atomic_queue", AtomicQueue);

} // namespace
