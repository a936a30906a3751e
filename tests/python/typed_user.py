# SPDX-License-Identifier: Apache-2.0
"""A program with every form of call, for mypy --strict: test_generated.py runs it through the checker only."""

import numpy as np
from numpy.typing import NDArray

import pyflowk


def normalise(x: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    y = pyflowk.masked_softmax(x, mask, scale=0.5, causal=True)
    return pyflowk.multiply(y, 2.0)


x = np.zeros((4, 8), np.float32)
flipped = pyflowk.permute(x, (1, 0), dtype="float16")
halves: NDArray[np.float16] = flipped
larger: NDArray[np.bool_] = pyflowk.greater(x, 0.0)
mixed: NDArray[np.float64] = pyflowk.add(x, np.ones((4, 8), np.int64))
y = pyflowk.prelu(x, np.ones(8, np.float32))
dx, dalpha = pyflowk.prelu_backward(y, x, np.ones(8, np.float32))
text: str = pyflowk.explain(pyflowk.permute, x, (1, 0))
array = pyflowk.empty((3, 4), "bfloat16")
sums: pyflowk.DeviceArray = pyflowk.add(array, array, stream=1)
fused = pyflowk.ElementwiseKernel("T x", "T y", "y = x")
scaled = pyflowk.clamp(pyflowk.scale(x, 2, 1), 0, None)
chosen = pyflowk.where(larger, x, 0.0)
reflected = pyflowk.subtract(1.0, x)
also: NDArray[np.float32] = pyflowk.subtract(x, pyflowk.clip(x, 0, 1))
turned = pyflowk.permute(x, 1, 0), pyflowk.permute(x, "q k -> k q"), pyflowk.transpose(x), pyflowk.softmax(x, dim=0)
view: pyflowk.DeviceArray = array[1:, None, ::-1].T.reshape(-1, 4)
total = 2 * view - view / 3
used: int = pyflowk.memory.statistics().used
shifted: NDArray[np.float32] = pyflowk.add([1, 2.5], pyflowk.multiply(x, (1, 2)))
bounded = pyflowk.clamp(x, [0, 1], np.float32(3))
status = pyflowk.Status.OVERLAP
try:
    pyflowk.log_softmax(pyflowk.asarray(x), out=array)
except pyflowk.FlowkError as error:
    print(error.status.name, error.message)
print(normalise(x, larger), pyflowk.cast(x, np.float16), pyflowk.cast(x, pyflowk.DType.INT8), text, pyflowk.__version__)
