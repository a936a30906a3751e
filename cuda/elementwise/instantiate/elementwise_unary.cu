// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

template flowk::core::Status flowk::elementwise::run_file<flowk::elementwise::ElementwiseFile::unary>(
    const ElementwisePlan& plan, flowk_stream stream);
