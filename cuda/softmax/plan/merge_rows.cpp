// SPDX-License-Identifier: Apache-2.0
// merge_rows: decides whether threads take vectors, and says so.
#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/text_writer.h"
#include "flowk/detail/sizes.h"
#include "softmax/softmax_merge.h"

namespace flowk::softmax {

void plan_softmax_merge(const MergeRowsRequest& request, const Device& device, MergeRowsPlan* plan) {
  plan->dtype = request.dtype;
  plan->params = request.params;
  MergeRowsParams& params = plan->params;
  const int64_t width = vector_bytes / dtype_info(request.dtype).element_bytes;
  const auto columns = static_cast<int64_t>(params.columns.divisor);
  const auto is_aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % vector_bytes == 0; };
  // The vectors of shorter rows could have more than two rows.
  params.by_vectors = columns >= width && is_aligned(params.y1) && is_aligned(params.y2) && is_aligned(params.y);
  const int64_t num_threads = ceil_div(params.num_rows * columns, params.by_vectors ? width : 1);
  plan->launch = {.num_blocks = ceil_div(num_threads, int64_t{merge_threads}),
                  .num_threads = merge_threads,
                  .uses_pdl = device.runs_pdl()};
}

void explain_softmax_merge(const MergeRowsPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  out.add("merge_rows: %s of %lld rows of %lld columns per thread\n",
          plan.params.by_vectors ? "a vector of 16 bytes" : "an element", static_cast<long long>(plan.params.num_rows),
          static_cast<long long>(plan.params.columns.divisor));
  out.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
  out.add("%s\n", plan.launch.uses_pdl ? ", PDL" : "");
  if (!plan.params.by_vectors) out.add_slow("y1, y2 and y are not aligned to 16 bytes, or a row has less");
}

}  // namespace flowk::softmax
