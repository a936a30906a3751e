/* SPDX-License-Identifier: Apache-2.0 */
/* By POSIX shared memory, for libflowk_simt, whose pointers are the host's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer_memory.h"

static const char *map(int file, size_t bytes, void **memory) {
  if (file < 0) return strerror(errno);
  *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return *memory == MAP_FAILED ? strerror(errno) : NULL;
}

const char *peer_choose_device(int rank) {
  (void)rank;
  return NULL;
}

const char *peer_allocate(size_t bytes, void **memory, peer_handle *handle) {
  static int num_allocations = 0;
  int file;
  snprintf(handle->bytes, sizeof(handle->bytes), "/flowk-%ld-%d", (long)getpid(), num_allocations++);
  file = shm_open(handle->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file >= 0 && ftruncate(file, (off_t)bytes) != 0) return strerror(errno);
  return map(file, bytes, memory);
}

const char *peer_open(const peer_handle *handle, size_t bytes, void **memory) {
  return map(shm_open(handle->bytes, O_RDWR, 0600), bytes, memory);
}

const char *peer_copy(void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
  return NULL;
}

const char *peer_synchronize(void) { return NULL; }

const char *peer_close(void *memory, size_t bytes) { return munmap(memory, bytes) == 0 ? NULL : strerror(errno); }

const char *peer_free(void *memory, size_t bytes, const peer_handle *handle) {
  shm_unlink(handle->bytes);
  return munmap(memory, bytes) == 0 ? NULL : strerror(errno);
}
