# SPDX-License-Identifier: Apache-2.0
"""What is for PyTorch alone; imported when the first torch tensor comes, which has imported torch."""
