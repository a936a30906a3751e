# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions and ElementwiseKernel."""
