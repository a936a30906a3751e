# SPDX-License-Identifier: Apache-2.0
"""pyflowk.jax: primitives of JAX, and XLA's handlers for them in C."""
