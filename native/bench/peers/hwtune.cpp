#include "queue_bench.hpp"

#include "hwtune/spsc_queue.hpp"

namespace {

template <class T, std::size_t capacity> class Hwtune {
  public:
    class Sender {
      public:
        explicit Sender(Hwtune &queue) : end_(queue.queue_.producer()) {}
        template <class Fill, class Full> bool send(std::uint64_t sequence, Fill fill, Full full) {
            T *slot = end_.claim();
            while (slot == nullptr) {
                if (!full()) {
                    return false;
                }
                slot = end_.claim();
            }
            fill(*slot);
            end_.commit(sequence);
            return true;
        }

      private:
        hwtune::SpscProducer<T> end_;
    };
    class Receiver {
      public:
        explicit Receiver(Hwtune &queue) : end_(queue.queue_.consumer()) {}
        template <class Use> bool receive(Use use) {
            const T *slot = end_.front();
            if (slot == nullptr) {
                return false;
            }
            use(*slot);
            end_.release();
            return true;
        }

      private:
        hwtune::SpscConsumer<T> end_;
    };

  private:
    hwtune::SpscQueue<T> queue_{capacity};
};

HWTUNE_PEER("hwtune", Hwtune);

} // namespace
