// SPDX-License-Identifier: Apache-2.0
// The kernels of permute. Each moves elements unchanged, dst[i] = src[i] for every index i, with strides of its own on
// each side: rows as they are (copies), a box of elements through shared memory (tiles), two to four channels in
// registers (channels).
#pragma once

#include "permute/permute_bytes.cuh"
#include "permute/permute_channels.cuh"
#include "permute/permute_copies.cuh"
#include "permute/permute_transpose.cuh"
#include "permute/permute_two_sided.cuh"
