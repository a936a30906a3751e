# SPDX-License-Identifier: Apache-2.0
"""Calls at the price of a launch: the fast path for arrays of types that are known to it, and prepared calls."""
