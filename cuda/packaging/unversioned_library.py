# SPDX-License-Identifier: Apache-2.0
"""Links libNAME.so for a wheel, which holds no symbolic link: a filter (ld's option) of 9 KB.

It has the functions' names and the soname of libNAME.so.1, so that a program linked with -lNAME needs that file alone.
Loaded by dlopen(), it loads libNAME.so.1 from its own folder, where every function is found.

    python unversioned_library.py flowk.h flowk.map libNAME.so.1 libNAME.so COMPILER...
"""

import re
import subprocess
import sys
from pathlib import Path

header, export_map, soname, output, *compiler = sys.argv[1:]
functions = re.findall(r"^FLOWK_API [^;(]*?(flowk_\w+)\(", Path(header).read_text(), re.MULTILINE)
source = "".join(f".globl {name}\n.type {name}, %function\n{name}:\n" for name in functions)
linker = [f"-Wl,--version-script={export_map}", f"-Wl,-soname,{soname}", f"-Wl,--filter,$ORIGIN/{soname}", "-Wl,-s"]
subprocess.run(
    [*compiler, "-shared", "-nostdlib", *linker, "-x", "assembler", "-", "-o", output],
    input=source + '.section .note.GNU-stack,"",%progbits\n',
    text=True,
    check=True,
)
