// SPDX-License-Identifier: Apache-2.0
// int32_t and its kin: <cstdint>, or the same for NVRTC, which has no C++ library.
#pragma once

#ifndef __CUDACC_RTC__
#include <cstdint>
#else
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
#endif
