# SPDX-License-Identifier: Apache-2.0
"""cffi in ABI mode: no compiler, and no pyflowk but for the library's place.

python call_by_cffi.py LIBRARY
"""

import sys

import cffi

ffi = cffi.FFI()
ffi.cdef("""
    int32_t flowk_batch_transpose(const void *src, void *dst, int64_t batch, int64_t rows, int64_t cols, int32_t dtype,
                                  void *stream);
    const char *flowk_last_error(void);
""")
FLOWK_INT32 = 4

flowk = ffi.dlopen(sys.argv[1])
src, dst = ffi.new("int32_t[6]", list(range(6))), ffi.new("int32_t[6]")
if flowk.flowk_batch_transpose(src, dst, 1, 2, 3, FLOWK_INT32, ffi.NULL) != 0:
    sys.exit(ffi.string(flowk.flowk_last_error()).decode())
print(list(dst))
assert list(dst) == [0, 3, 1, 4, 2, 5]
