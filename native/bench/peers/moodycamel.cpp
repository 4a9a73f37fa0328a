#include "queue_bench.hpp"

#include <readerwriterqueue/readerwriterqueue.h>

namespace {

template <class T, std::size_t capacity> class Moodycamel {
  public:
    class Sender {
      public:
        explicit Sender(Moodycamel &queue) : queue_(queue.queue_) {}
        template <class Fill, class Full> bool send(std::uint64_t sequence, Fill fill, Full full) {
            T message;
            message.sequence = sequence;
            fill(message);
            while (!queue_.try_enqueue(message)) {
                if (!full()) {
                    return false;
                }
            }
            return true;
        }

      private:
        decltype(Moodycamel::queue_) &queue_;
    };
    class Receiver {
      public:
        explicit Receiver(Moodycamel &queue) : queue_(queue.queue_) {}
        template <class Use> bool receive(Use use) { const T *message = queue_.peek();
            if (message == nullptr) {
                return false;
            }
            use(*message);
            return queue_.pop(); }

      private:
        decltype(Moodycamel::queue_) &queue_;
    };

  private:
    alignas(128) moodycamel::ReaderWriterQueue<T> queue_{capacity};
};

HWTUNE_PEER("moodycamel", Moodycamel);

} // namespace
