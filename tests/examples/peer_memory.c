/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix that is split by rows over processes, transposed: every rank writes its parts of the transpose straight into
 * the memory of the ranks that own them, in one call of flowk_permute_many().
 *
 *   1. every rank allocates its result and tells the others its handle; they open it
 *   2. barrier: the results may be written
 *   3. flowk_permute_many() with the pointers of all ranks, then a wait for this rank's stream
 *   4. barrier: the results are whole
 *
 * Here processes are forked, and handles and the barrier lie in a page that they share. With MPI the ranks of one host
 * are those of MPI_Comm_split_type(MPI_COMM_TYPE_SHARED), MPI_Allgather() carries the handles, and MPI_Barrier() is the
 * barrier. With NCCL 2.29 or newer the results are memory of ncclMemAlloc(), ncclCommWindowRegister() with
 * NCCL_WIN_COLL_SYMMETRIC takes the place of step 1's handles, ncclGetPeerDevicePointer(window, 0, rank, &pointer) that
 * of peer_open() (NULL where a rank's memory is out of reach), and an ncclAllReduce() of one element on the same stream
 * that of the wait and the barrier.
 *
 * Build on the CPU: cc peer_memory.c peer_memory_host.c $(pkg-config --cflags --libs flowk_simt) -lrt -pthread
 * Build for GPUs:   cc peer_memory.c peer_memory_cuda.c $(pkg-config --cflags --libs flowk) -I$CUDA_HOME/include
 *                     -L$CUDA_HOME/lib64 -lcudart -pthread
 * Run:              a.out RANKS; ranks share GPUs where there are fewer */
#include "peer_memory.h"

#include <flowk/flowk.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { max_ranks = 16, num_rows = 1003, num_columns = 771 };

/* What the processes share. */
typedef struct {
  pthread_barrier_t barrier;
  peer_handle handles[max_ranks];
} meeting;

#define CHECK(call)                                                         \
  do {                                                                      \
    const char *const text_ = (call);                                       \
    if (text_ != NULL) return fprintf(stderr, "%s: %s\n", #call, text_), 1; \
  } while (0)

/* Ranks own ceil(extent / ranks) indices each, the last ones fewer: the first one, or extent for rank = ranks. */
static int64_t begin_of(int rank, int ranks, int64_t extent) {
  const int64_t begin = rank * ((extent + ranks - 1) / ranks);
  return begin < extent ? begin : extent;
}

static size_t result_bytes(int rank, int ranks) {
  const int64_t columns = begin_of(rank + 1, ranks, num_columns) - begin_of(rank, ranks, num_columns);
  return sizeof(int32_t) * (size_t)(columns > 0 ? columns : 1) * num_rows;
}

/* Writes this rank's rows, `src`, into the results of all ranks, `results`. */
static const char *push(const int32_t *src, void *const *results, int rank, int ranks) {
  static const int32_t axes[] = {1, 0};
  const int64_t first_row = begin_of(rank, ranks, num_rows), rows = begin_of(rank + 1, ranks, num_rows) - first_row;
  const int64_t src_strides[] = {num_columns, 1}, dst_strides[] = {num_rows, 1};
  int peer, count;
  for (peer = 0; peer < ranks; peer += count) { /* one call for all ranks with the same number of columns */
    const void *srcs[max_ranks];
    void *dsts[max_ranks];
    int64_t shape[] = {0, 0};
    shape[0] = rows;
    shape[1] = begin_of(peer + 1, ranks, num_columns) - begin_of(peer, ranks, num_columns);
    for (count = 0; peer + count < ranks; ++count) {
      const int64_t first_column = begin_of(peer + count, ranks, num_columns);
      if (begin_of(peer + count + 1, ranks, num_columns) - first_column != shape[1]) break;
      srcs[count] = src + first_column;
      dsts[count] = (int32_t *)results[peer + count] + first_row;
    }
    if (flowk_permute_many(count, srcs, src_strides, FLOWK_INT32, dsts, dst_strides, FLOWK_INT32, 2, shape, axes, 1.0,
                           NULL) != FLOWK_STATUS_SUCCESS)
      return flowk_last_error();
  }
  return NULL;
}

static int run(int rank, int ranks, meeting *shared) {
  const int64_t first_row = begin_of(rank, ranks, num_rows), rows = begin_of(rank + 1, ranks, num_rows) - first_row;
  const int64_t first_column = begin_of(rank, ranks, num_columns);
  const int64_t columns = begin_of(rank + 1, ranks, num_columns) - first_column;
  const size_t src_bytes = sizeof(int32_t) * (size_t)(rows > 0 ? rows : 1) * num_columns;
  const size_t bytes = result_bytes(rank, ranks);
  int32_t *const host = malloc(src_bytes > bytes ? src_bytes : bytes);
  void *src, *results[max_ranks];
  peer_handle own;
  int64_t i, j, num_wrong = 0;
  int peer;
  if (host == NULL) return 1;
  CHECK(peer_choose_device(rank));
  CHECK(peer_allocate(src_bytes, &src, &own));
  CHECK(peer_allocate(bytes, &results[rank], &shared->handles[rank]));
  for (i = 0; i < rows; ++i)
    for (j = 0; j < num_columns; ++j) host[i * num_columns + j] = (int32_t)((first_row + i) * num_columns + j);
  CHECK(peer_copy(src, host, src_bytes));
  pthread_barrier_wait(&shared->barrier); /* every handle is there */
  for (peer = 0; peer < ranks; ++peer)
    if (peer != rank) CHECK(peer_open(&shared->handles[peer], result_bytes(peer, ranks), &results[peer]));

  pthread_barrier_wait(&shared->barrier); /* every rank's result may be written */
  CHECK(push(src, results, rank, ranks));
  CHECK(peer_synchronize());
  pthread_barrier_wait(&shared->barrier); /* every rank's result is whole */

  CHECK(peer_copy(host, results[rank], bytes));
  for (i = 0; i < columns; ++i)
    for (j = 0; j < num_rows; ++j) num_wrong += host[i * num_rows + j] != (int32_t)(j * num_columns + first_column + i);
  printf("rank %d of %d: %ld of %ld elements are wrong\n", rank, ranks, (long)num_wrong, (long)(columns * num_rows));
  for (peer = 0; peer < ranks; ++peer)
    if (peer != rank) CHECK(peer_close(results[peer], result_bytes(peer, ranks)));
  pthread_barrier_wait(&shared->barrier); /* no rank has the memory open */
  CHECK(peer_free(results[rank], bytes, &shared->handles[rank]));
  CHECK(peer_free(src, src_bytes, &own));
  free(host);
  return num_wrong != 0;
}

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? atoi(argv[1]) : 2;
  pid_t processes[max_ranks];
  pthread_barrierattr_t attributes;
  meeting *shared;
  int rank, status, failed = 0, left;
  if (ranks < 1 || ranks > max_ranks) return fprintf(stderr, "RANKS must be in 1 ... %d\n", max_ranks), 1;
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return perror("mmap"), 1;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, (unsigned)ranks);
  for (rank = 0; rank < ranks; ++rank) { /* before any call of CUDA */
    processes[rank] = fork();
    if (processes[rank] == 0) return run(rank, ranks, shared);
    if (processes[rank] < 0) return perror("fork"), 1;
  }
  for (left = ranks; left > 0; --left) {
    if (wait(&status) < 0) return perror("wait"), 1;
    if (status != 0 && !failed) { /* the others wait for it at a barrier */
      failed = 1;
      for (rank = 0; rank < ranks; ++rank) kill(processes[rank], SIGTERM);
    }
  }
  return failed;
}
