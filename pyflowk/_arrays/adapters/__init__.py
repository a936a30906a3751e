# SPDX-License-Identifier: Apache-2.0
"""How pyflowk reads and makes arrays: an adapter for each kind of array, found by the array's type in registry.py."""
