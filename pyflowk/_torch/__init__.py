# SPDX-License-Identifier: Apache-2.0
"""The part of pyflowk for PyTorch: imported with the first tensor, so that pyflowk itself never imports torch."""
