# SPDX-License-Identifier: Apache-2.0
"""The C library: its prototypes, how it is found and loaded, its errors, and the CUDA driver."""
