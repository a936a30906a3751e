// SPDX-License-Identifier: Apache-2.0
#include "simt/helper_threads.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <mutex>
#include <new>

namespace flowk::simt {
namespace {

struct Helpers {
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable called, done;
  int num_started = 0;
  bool is_called = false;  // from call_helpers() to dismiss_helpers()
  int num_wanted = 0;      // that may still begin
  int num_working = 0;
  void (*work)(void*) = nullptr;
  void* context = nullptr;
};

// Never freed, because the threads wait on it for as long as the process lives.
std::atomic<Helpers*> all_helpers = nullptr;

void* help(void* helpers_of_process) {
  Helpers& helpers = *static_cast<Helpers*>(helpers_of_process);
  std::fesetenv(FE_DFL_ENV);  // as run_grid() does; a new thread has that of its creator
  std::unique_lock lock(helpers.mutex);
  for (;;) {
    helpers.called.wait(lock, [&] { return helpers.num_wanted > 0; });
    --helpers.num_wanted;
    ++helpers.num_working;
    lock.unlock();
    helpers.work(helpers.context);
    lock.lock();
    if (--helpers.num_working == 0) helpers.done.notify_one();
  }
}

void start_helper(Helpers& helpers) {
  sigset_t all_signals, own_signals;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &own_signals);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, help, &helpers) == 0) {
    pthread_detach(thread);
    ++helpers.num_started;
  }
  pthread_sigmask(SIG_SETMASK, &own_signals, nullptr);
}

// After a fork the parent's helpers are not there, and their mutex may be locked for ever.
Helpers* helpers_of_this_process() {
  Helpers* helpers = all_helpers.load();
  while (helpers == nullptr || helpers->process != getpid()) {
    Helpers* made = new (std::nothrow) Helpers;
    if (made == nullptr) return nullptr;
    if (all_helpers.compare_exchange_strong(helpers, made)) return made;
    delete made;
  }
  return helpers;
}

}  // namespace

bool call_helpers(int count, void (*work)(void*), void* context) {
  Helpers* helpers = helpers_of_this_process();
  if (helpers == nullptr) return false;
  const std::lock_guard lock(helpers->mutex);
  if (helpers->is_called) return false;
  while (helpers->num_started < count) {
    const int num_before = helpers->num_started;
    start_helper(*helpers);
    if (helpers->num_started == num_before) break;
  }
  if (helpers->num_started == 0) return false;
  helpers->is_called = true;
  helpers->num_wanted = std::min(count, helpers->num_started);
  helpers->work = work;
  helpers->context = context;
  for (int n = 0; n < helpers->num_wanted; ++n) helpers->called.notify_one();
  return true;
}

void dismiss_helpers() {
  Helpers& helpers = *all_helpers.load();
  std::unique_lock lock(helpers.mutex);
  helpers.num_wanted = 0;
  helpers.done.wait(lock, [&] { return helpers.num_working == 0; });
  helpers.is_called = false;
}

}  // namespace flowk::simt
