# SPDX-License-Identifier: Apache-2.0
"""The folder of the sources, for tests that read them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
