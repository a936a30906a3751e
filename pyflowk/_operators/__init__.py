# SPDX-License-Identifier: Apache-2.0
"""permute, PReLU and softmax: what each passes to the C library."""
