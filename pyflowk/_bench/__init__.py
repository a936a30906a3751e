# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk bench`: cases in sets, their calls on rotating buffers, rivals, times and reports."""
