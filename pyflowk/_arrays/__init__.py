# SPDX-License-Identifier: Apache-2.0
"""Arrays, element types and streams: those of NumPy, torch, CuPy, DLPack and pyflowk's own."""
