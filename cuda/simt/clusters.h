// SPDX-License-Identifier: Apache-2.0
// What kernels for sm_90 do by instructions that have no CUDA name: clusters, named barriers, transaction barriers
// (mbarrier) and bulk copies. Each function faults where the PTX manual says that the behaviour is undefined and the
// executor can tell.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flowk::simt {

// The block's index in its cluster.
unsigned cluster_rank();

// barrier.cluster: a thread arrives and goes on, and later waits until every thread of the cluster has arrived.
void arrive_at_cluster();
void wait_for_cluster();

// barrier.cta 1: its phase ends when `num_threads` threads of the block have called one of the two. The first returns
// at once, the second when the phase has ended.
void arrive_at_named_barrier(int num_threads);
void wait_at_named_barrier(int num_threads);

// An mbarrier, 8 bytes of the block's shared memory. Its phase ends after the arrivals and all expected bytes.
void init_transactions(std::uint64_t* barrier, int num_arrivals);
void expect_transactions(std::uint64_t* barrier, int num_bytes);
void arrive_at_transactions(std::uint64_t* barrier);
void expect_and_arrive(std::uint64_t* barrier, int num_bytes);
// Waits until the phase with parity `parity` ends.
void wait_for_transactions(std::uint64_t* barrier, int parity);

// st.async: writes 4, 8 or 16 bytes into the shared memory of block `rank` of the cluster, and counts them on a barrier
// there. `dst` and `barrier` are the addresses in the calling block's own shared memory.
void send_to_block(unsigned rank, void* dst, const void* value, std::size_t bytes, std::uint64_t* barrier);

// cp.async.bulk, in multiples of 16 bytes. A load is done when a thread waits for `barrier`, and no earlier, so that a
// forgotten wait reads garbage.
void bulk_load(void* shared_dst, const void* src, int num_bytes, std::uint64_t* barrier);
void bulk_store(void* dst, const void* shared_src, int num_bytes);

}  // namespace flowk::simt
