# SPDX-License-Identifier: Apache-2.0
"""The public names of pyflowk by topic, for `help(pyflowk)` and the reference; and the last sections of generated
texts, related functions and examples."""

from __future__ import annotations

# generate.py fails if a public name is missing here, or is here and not public.
TOPICS = {
    "Move": "permute batch_transpose transpose swapaxes moveaxis permute_many cast",
    "Softmax": "softmax log_softmax masked_softmax masked_softmax_backward masked_softmax_backward_dbias "
    "masked_softmax_backward_dbias_workspace_bytes softmax_merge",
    "Cross-entropy": "cross_entropy cross_entropy_backward cross_entropy_partials cross_entropy_merge",
    "Activations": "relu gelu silu silu_mul sigmoid tanh softplus elu leaky_relu prelu prelu_backward "
    "prelu_backward_workspace_bytes relu_backward gelu_backward silu_backward sigmoid_backward "
    "tanh_backward softplus_backward elu_backward leaky_relu_backward",
    "Combine, arithmetic": "add subtract multiply divide trunc_divide floor_divide remainder fma add_multiply scale "
    "lerp negative positive abs reciprocal square sqrt rsqrt pow hypot",
    "Combine, choose and compare": "where clip maximum minimum equal not_equal less less_equal greater greater_equal "
    "isnan isinf isfinite",
    "Combine, round and sign": "floor ceil round trunc sign signbit copysign",
    "Combine, exponentials": "exp exp2 expm1 log log2 log10 log1p logaddexp erf",
    "Combine, angles": "sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh",
    "Combine, logic and bits": "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor "
    "bitwise_invert bitwise_left_shift bitwise_right_shift",
    "Formulas of your own": "ElementwiseKernel",
    "Arrays on a GPU": "asarray from_dlpack empty empty_like zeros ones full DeviceArray DType",
    "Tools": "explain prepare tune Tuning save_plans load_plans is_available device_count synchronize get_include "
    "get_library FlowkError FlowkValueError Status",
}
SEE_ALSO = {
    "cast": {"permute": "Converts and reorders in one pass.", "scale": "Multiplies by a number."},
    "add_multiply": {"fma": "x * y + z."},
    "gelu": {"gelu_backward": "The gradient, for use without autograd."},
    "leaky_relu": {"prelu": "With a slope per channel that is learned."},
    "add": {"add_multiply": "x + a * y * z in one pass.", "fma": "x * y + z in one pass."},
    "relu": {"leaky_relu": "With a slope that is a number.", "prelu": "With a slope per channel."},
    "silu_mul": {"silu": "Without the product.", "multiply": "The product alone."},
    "where": {"clip": "Between two bounds.", "masked_softmax": "A softmax that leaves out masked columns."},
}
EXAMPLES = {
    "cast": """
        >>> pyflowk.cast(np.array([0.5, 2.75]), np.int32)
        array([0, 2], dtype=int32)
        """,
    "leaky_relu": """
        >>> pyflowk.leaky_relu(np.array([-2.0, 2.0]), 0.25)
        array([-0.5,  2. ])
        """,
    "gelu": """
        >>> pyflowk.gelu(np.array([-1.0, 0.0, 1.0])).round(4)
        array([-0.1587,  0.    ,  0.8413])
        """,
    "clip": """
        >>> pyflowk.clip(np.array([-2.0, 0.5, 3.0]), 0, 1)
        array([0. , 0.5, 1. ])
        """,
    "scale": """
        >>> pyflowk.scale(np.array([1.0, 2.0]), 10, 0.5)
        array([10.5, 20.5])
        """,
    "add_multiply": """
        >>> pyflowk.add_multiply(np.array([1.0, 2.0]), 3.0, np.array([1.0, -1.0]), 0.5)
        array([2.5, 0.5])
        """,
    "add": """
        >>> pyflowk.add(np.array([[1, 2], [3, 4]]), np.array([10, 20]))
        array([[11, 22],
               [13, 24]])
        """,
    "fma": """
        >>> pyflowk.fma(np.array([1.0, 2.0]), 10, np.array([0.5, 0.25]))
        array([10.5 , 20.25])
        """,
    "relu": """
        >>> pyflowk.relu(np.array([-1.5, 0.0, 2.0]))
        array([0., 0., 2.])
        """,
    "silu_mul": """
        >>> gate, x = np.array([0.0, 100.0]), np.array([2.0, 2.0])
        >>> pyflowk.silu_mul(gate, x)
        array([  0., 200.])
        """,
    "where": """
        >>> x = np.array([-1.0, 0.0, 3.0])
        >>> pyflowk.where(pyflowk.greater(x, 0), x, -1)
        array([-1., -1.,  3.])
        """,
}
JAX_EXAMPLES = {
    "permute": """
        >>> x = jnp.arange(6).reshape(1, 2, 3)
        >>> jax.jit(lambda x: pyflowk.jax.permute(x, (2, 0, 1)))(x).shape
        (3, 1, 2)
        """,
    "masked_softmax": """
        >>> scores = jnp.zeros((2, 2, 4))  # (batch, q, k)
        >>> y = pyflowk.jax.masked_softmax(scores, lengths=jnp.array([4, 1]), causal=True)
        >>> y[1, 0].tolist()
        [1.0, 0.0, 0.0, 0.0]
        """,
    "prelu": """
        >>> loss = lambda x, alpha: pyflowk.jax.prelu(x, alpha).sum()
        >>> dx, dalpha = jax.grad(loss, (0, 1))(jnp.array([[-2.0, 4.0]]), jnp.array([0.25, 0.5]))
        >>> dx.tolist(), dalpha.tolist()
        ([[0.25, 1.0]], [-2.0, 0.0])
        """,
    "relu": """
        >>> jax.grad(lambda x: pyflowk.jax.relu(x).sum())(jnp.array([-1.0, 2.0])).tolist()
        [0.0, 1.0]
        """,
}
