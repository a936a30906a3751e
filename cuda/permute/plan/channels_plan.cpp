// SPDX-License-Identifier: Apache-2.0
// Plans channels: a few planes become pixels, or pixels planes.
#include "permute/plan/permute_problem.h"
#include "permute/plan/permute_tuning.h"

namespace flowk::permute {
namespace {

// Shorter planes are less than one warp's work: tiles that take several planes are planned instead. Not measured.
constexpr int64_t min_plane_bytes = 512;

// The dimensions of a problem that are its channels and its pixels, and the addresses of the first plane and pixel.
struct ChannelDims {
  bool interleaves = true;
  int channels = -1;
  int pixels = -1;
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  int64_t plane_stride = 0;
  int32_t planar_bytes = 0;  // of an element in a plane, and in a pixel
  int32_t pixel_bytes = 0;
};

bool has_kernels(const PermuteProblem& problem, const ChannelDims& dims) {
  return !problem.is_converted() || (converts_channels(dims.planar_bytes, dims.pixel_bytes, problem.in_double()) &&
                                     problem.extents[dims.channels] >= min_converted_channels);
}

bool is_few(int64_t extent) { return extent >= min_channels && extent <= max_channels; }

// dst is (..., pixels, channels), and src has the pixels innermost.
bool find_interleave(const PermuteProblem& problem, ChannelDims* dims) {
  const int channels = problem.rank - 1, pixels = problem.rank - 2;
  const int32_t unit = problem.dst_unit_bytes;
  const int64_t extent = problem.extents[channels];
  const bool reversed = problem.dst_strides[channels] == -unit;  // the last channel comes first in dst
  if (!is_few(extent) || (problem.dst_strides[channels] != unit && !reversed)) return false;
  if (problem.src_strides[pixels] != problem.unit_bytes || problem.dst_strides[pixels] != extent * unit) return false;
  *dims = {true, channels, pixels, problem.src, problem.dst, problem.src_strides[channels], problem.unit_bytes, unit};
  if (reversed) {
    dims->src += (extent - 1) * dims->plane_stride;
    dims->dst -= (extent - 1) * unit;
    dims->plane_stride = -dims->plane_stride;
  }
  return true;
}

// dst has the pixels innermost and the channels anywhere; src is (..., pixels, channels).
bool find_deinterleave(const PermuteProblem& problem, ChannelDims* dims) {
  const int pixels = problem.rank - 1;
  const int32_t unit = problem.unit_bytes;
  if (problem.dst_strides[pixels] != problem.dst_unit_bytes) return false;
  for (int d = 0; d < pixels; ++d) {
    if (problem.src_strides[d] != unit || !is_few(problem.extents[d])) continue;
    if (problem.src_strides[pixels] != problem.extents[d] * unit) continue;
    *dims = {false, d, pixels, problem.src, problem.dst, problem.dst_strides[d], problem.dst_unit_bytes, unit};
    return true;
  }
  return false;
}

// Does every plane, and every batch's first pixel, start on 16 bytes, and are a plane and its pixels whole vectors?
bool is_aligned(const PermuteProblem& problem, const ChannelDims& dims) {
  if (reinterpret_cast<uintptr_t>(dims.src) % vector_bytes != 0) return false;
  if (reinterpret_cast<uintptr_t>(dims.dst) % vector_bytes != 0) return false;
  if (dims.plane_stride % vector_bytes != 0) return false;
  const int64_t pixels = problem.extents[dims.pixels];
  if (pixels * dims.planar_bytes % vector_bytes != 0) return false;
  if (pixels * problem.extents[dims.channels] * dims.pixel_bytes % vector_bytes != 0) return false;
  for (int d = 0; d < problem.rank; ++d) {
    if (d == dims.channels || d == dims.pixels) continue;
    if (problem.src_strides[d] % vector_bytes != 0 || problem.dst_strides[d] % vector_bytes != 0) return false;
  }
  return true;
}

}  // namespace

bool plan_channels(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  ChannelDims dims;
  const bool has_dims = problem.rank >= 2 && (find_interleave(problem, &dims) || find_deinterleave(problem, &dims));
  const int64_t plane_bytes = has_dims ? problem.extents[dims.pixels] * dims.planar_bytes : 0;
  if (plane_bytes < min_plane_bytes || !has_kernels(problem, dims) || !is_aligned(problem, dims)) return false;

  // The fewest blocks per plane. They have equal sizes, rounded up to whole warps.
  const int64_t plane_vectors = plane_bytes / vector_bytes;
  const int64_t min_tiles = ceil_div(plane_vectors, max_channel_threads);
  const int64_t vectors_per_tile = ceil_div(plane_vectors, min_tiles);
  const int64_t num_threads = round_up(vectors_per_tile, warp_lanes);

  const int64_t num_channels = problem.extents[dims.channels];
  const int64_t planar_step = num_threads * vector_bytes;
  const int64_t pixel_step = planar_step / dims.planar_bytes * num_channels * dims.pixel_bytes;
  ChannelParams params;
  params.src = dims.src;
  params.dst = dims.dst;
  params.num_channels = static_cast<int32_t>(num_channels);
  params.plane_stride = dims.plane_stride;
  params.plane_vectors = plane_vectors;
  int64_t num_blocks = ceil_div(plane_vectors, num_threads);
  if (num_blocks > max_grid_blocks) return false;
  params.grid[0] = {Divider(static_cast<uint32_t>(num_blocks)), dims.interleaves ? planar_step : pixel_step,
                    dims.interleaves ? pixel_step : planar_step};
  params.grid_rank = 1;
  for (int d = problem.rank - 1; d >= 0; --d) {
    if (d == dims.channels || d == dims.pixels) continue;
    if (problem.extents[d] > max_grid_blocks / num_blocks) return false;
    num_blocks *= problem.extents[d];
    params.grid[params.grid_rank++] = {Divider(static_cast<uint32_t>(problem.extents[d])), problem.src_strides[d],
                                       problem.dst_strides[d]};
  }
  // The span may start anywhere in its first line of shared memory.
  const int64_t tile_shared_bytes = pixel_step + line_bytes;
  params.num_tiles = static_cast<uint32_t>(num_blocks);
  params.tile_shared_vectors = static_cast<uint32_t>(tile_shared_bytes / vector_bytes);
  if (!problem.is_converted() && num_threads < min_channel_block_threads && (num_threads & (num_threads - 1)) == 0) {
    params.tiles_per_block = static_cast<uint32_t>(min_channel_block_threads / num_threads);
    params.thread_bits = num_threads == 32 ? 5 : 6;
  }
  Channels& channels = plan->mechanism.emplace<Channels>();
  channels.params = params;
  channels.interleaves = dims.interleaves;
  set_units(problem, plan);
  const int64_t tiles_per_block = params.tiles_per_block;
  plan->launch = {ceil_div(num_blocks, tiles_per_block), static_cast<int32_t>(num_threads * tiles_per_block),
                  static_cast<int32_t>(tile_shared_bytes * tiles_per_block)};
  plan->launch.uses_pdl = device.runs_pdl();
  return true;
}

}  // namespace flowk::permute
