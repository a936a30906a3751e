// SPDX-License-Identifier: Apache-2.0
// shared<T>(): installed, because a user's own elementwise kernels stage tiles as well.
#pragma once

#include "flowk/shared.cuh"
