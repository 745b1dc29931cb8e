"""Makes catalog/schema_pb2.py and .pyi from catalog/schema.proto: `make proto`.

The generated code is checked in, so that an installation needs no compiler; `--check` fails when it is not current.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["generate", "stale"]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "catalog/schema.proto"
GENERATED = ("catalog/schema_pb2.py", "catalog/schema_pb2.pyi")


def generate(into: Path) -> None:
    """Write the generated files below `into`. Raises `CalledProcessError` if the compiler refuses the source."""
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", f"--python_out={into}", f"--pyi_out={into}"]
    subprocess.run([*compiler, SOURCE], cwd=ROOT, check=True)


def stale() -> list[str]:
    """The generated files that differ from what the source gives now."""
    with tempfile.TemporaryDirectory() as fresh:
        generate(Path(fresh))
        return [name for name in GENERATED if (ROOT / name).read_bytes() != (Path(fresh) / name).read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the generated code is not current"
    )
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    old = stale()
    for name in old:
        print(f"{name} is not what {SOURCE} gives: run `make proto`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main())
