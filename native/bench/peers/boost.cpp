#include "queue_bench.hpp"

#include <boost/lockfree/spsc_queue.hpp>

namespace {

template <class T, std::size_t capacity> class Boost {
  public:
    class Sender {
      public:
        explicit Sender(Boost &queue) : queue_(queue.queue_) {}
        template <class Fill, class Full> bool send(std::uint64_t sequence, Fill fill, Full full) {
            T message;
            message.sequence = sequence;
            fill(message);
            while (!queue_.push(message)) {
                if (!full()) {
                    return false;
                }
            }
            return true;
        }

      private:
        decltype(Boost::queue_) &queue_;
    };
    class Receiver {
      public:
        explicit Receiver(Boost &queue) : queue_(queue.queue_) {}
        template <class Use> bool receive(Use use) { return queue_.consume_one(use) != 0; }

      private:
        decltype(Boost::queue_) &queue_;
    };

  private:
    alignas(128) boost::lockfree::spsc_queue<T, boost::lockfree::capacity<capacity>> queue_;
};

HWTUNE_PEER("boost", Boost);

} // namespace
