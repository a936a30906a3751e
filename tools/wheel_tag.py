# SPDX-License-Identifier: Apache-2.0
"""The tag of a wheel: which Pythons and systems it is for."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path


def retag(wheel: Path, folder: Path, platform: str | None = None) -> Path:
    """A copy of a wheel in `folder` for every Python 3, and for `platform` if it is given. Meson-python tags what it
    installs beside modules for one Python. Only the dist-info's WHEEL and its line of RECORD change."""
    *name, _, _, built_for = wheel.stem.split("-")
    tag = f"py3-none-{platform or built_for}"
    retagged = folder / f"{'-'.join([*name, tag])}.whl"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(retagged, "w", zipfile.ZIP_DEFLATED) as new:
        (record_name,) = (path for path in old.namelist() if path.endswith(".dist-info/RECORD"))
        wheel_name = record_name.replace("RECORD", "WHEEL")
        description = re.sub(r"^Tag: .*\n", "", old.read(wheel_name).decode(), flags=re.MULTILINE).rstrip("\n")
        tags = "".join(f"\nTag: py3-none-{one}" for one in tag.split("-")[2].split("."))
        content = f"{description}{tags}\n".encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        line = f"{wheel_name},sha256={digest},{len(content)}"
        record = re.sub(rf"^{re.escape(wheel_name)},.*$", line, old.read(record_name).decode(), flags=re.MULTILINE)
        changed = {wheel_name: content, record_name: record.encode()}
        for entry in old.infolist():
            new.writestr(entry, changed.get(entry.filename) or old.read(entry), zipfile.ZIP_DEFLATED)
    return retagged
