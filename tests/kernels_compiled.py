"""Run by test_kernels.py in a process of its own: compiles the kernels ahead of time and prints what they became.

One JSON object a line: kernel, architecture, registers, spilled bytes, 64-bit divisions, calls.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from voxradix.keys import kernels

ARCHITECTURES = (80, 90, 100)
I32, I64 = "i32", "i64"
SIGNATURES = {
    kernels.hash_rows_kernel: {"rows": "*i64", "raw": "*i64"}
    | dict.fromkeys(("batch", "columns", "row_stride", "column_stride"), I32),
    kernels.publish_kernel: {"stop": "*u8"}
    | dict.fromkeys(("codes", "places", "rows", "keys", "packed"), "*i64")
    | dict.fromkeys(("batch", "codebooks", "words", "stop_stride", "row_stride", "column_stride"), I32)
    | dict.fromkeys(("continue_id", "end_id", "pad_code", "end_key", "space", "offset"), I32),
}


def assembler(architecture: int) -> str:
    """The assembler that comes with Triton for an architecture."""
    name = "ptxas-blackwell" if architecture >= 100 else "ptxas"
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


for kernel, signature in SIGNATURES.items():
    for architecture in ARCHITECTURES:
        source = ASTSource(
            fn=kernel, signature={**signature, "BLOCK": "constexpr"}, constexprs={"BLOCK": kernels.BLOCK}
        )
        made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": 1})
        code = made.asm["ptx"]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(code)
            file.flush()
            target = re.search(r"\.target (sm_\w+)", code)
            assert target is not None
            command = [assembler(architecture), "-v", f"--gpu-name={target[1]}", "-o", "/dev/null", file.name]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        registers = re.search(r"Used (\d+) registers", said)
        assert registers is not None, said
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", said))
        print(
            json.dumps(
                {
                    "kernel": kernel.__name__,
                    "architecture": architecture,
                    "registers": int(registers[1]),
                    "spilled": spills,
                    "divisions": len(re.findall(r"\b(?:div|rem)\.[su]64\b", code)),
                    "calls": len(re.findall(r"\bcall\b", code)),
                }
            )
        )
