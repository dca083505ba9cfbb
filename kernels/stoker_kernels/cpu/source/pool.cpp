#include "pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace stoker {
namespace {

// Threads wait within a step by spinning: phases are microseconds apart. One that waits longer sleeps: on a busy machine the thread that it waits for
// then gets its core. With a yield instead, a step beside other work took 1.5 times as long.
constexpr int kSpins = 1500;
// Between steps they soon sleep: a core that spins is missing to the api beside us.
constexpr int kIdleSpins = 2000;

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleep_while(std::atomic<unsigned>& value, unsigned expected) {
  syscall(SYS_futex, reinterpret_cast<unsigned*>(&value), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wake_all(std::atomic<unsigned>& value) { syscall(SYS_futex, reinterpret_cast<unsigned*>(&value), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace

Pool::Pool(int num_threads) {
  for (int index = 1; index < num_threads; ++index) threads_.emplace_back([this, index] { serve(index); });
}

Pool::~Pool() {
  is_ending_ = true;
  ++generation_;
  wake_all(generation_);
  for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(Worker&)>& body) {
  next_.store(0, std::memory_order_relaxed);
  body_ = &body;
  Worker worker(*this, 0, phase_.load());
  if (!threads_.empty()) {
    generation_.fetch_add(1);
    wake_all(generation_);
  }
  body(worker);
  worker.wait_for_all();
}

void Pool::serve(int index) {
  unsigned seen = 0;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen && spins < kIdleSpins; ++spins) pause_core();
    while (generation_.load(std::memory_order_acquire) == seen) sleep_while(generation_, seen);
    ++seen;
    if (is_ending_) return;
    Worker worker(*this, index, phase_.load(std::memory_order_acquire));
    (*body_)(worker);
    worker.wait_for_all();
  }
}

void Pool::arrive(unsigned& phase) {
  ++phase;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count()) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    phase_.store(phase);
    if (num_sleeping_.load() > 0) wake_all(phase_);
    return;
  }
  for (int spins = 0; spins < kSpins; ++spins) {
    if (phase_.load(std::memory_order_acquire) == phase) return;
    pause_core();
  }
  num_sleeping_.fetch_add(1);
  while (phase_.load() != phase) sleep_while(phase_, phase - 1);
  num_sleeping_.fetch_sub(1);
}

}  // namespace stoker
