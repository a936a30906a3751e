/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes of this machine write to. peer_memory_cuda.c has it by CUDA IPC, peer_memory_host.c by
 * POSIX shared memory. Every function returns NULL, or a text where it failed. */
#ifndef PEER_MEMORY_H_
#define PEER_MEMORY_H_

#include <stddef.h>

/* What another process opens the memory with; plain bytes, which any way between processes may carry. */
typedef struct {
  char bytes[64];
} peer_handle;

const char *peer_choose_device(int rank);                                      /* rank modulo the number of GPUs */
const char *peer_allocate(size_t bytes, void **memory, peer_handle *handle);   /* memory of this rank */
const char *peer_open(const peer_handle *handle, size_t bytes, void **memory); /* another rank's */
const char *peer_copy(void *dst, const void *src, size_t bytes);               /* to and from memory of malloc() */
const char *peer_synchronize(void);                                            /* waits for what was enqueued */
const char *peer_close(void *memory, size_t bytes);                            /* of peer_open() */
const char *peer_free(void *memory, size_t bytes, const peer_handle *handle);

#endif
