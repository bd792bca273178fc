"""Wheels of what a machine with a GPU lacks, so that the suite starts there with no index in reach.

    python -m benchmarks.gpu.bundle --out build/gpu-bundle       # `make gpu-bundle`

On that machine, in the repository's root:

    . build/gpu-bundle/start.sh && python3 -m benchmarks.gpu --part 1

It is taken to have PyTorch with torchvision, JAX with CUDA, pyarrow, numba, scikit-learn, protobuf, typer, rich and
nvidia-ml-py. What Phasepoint needs beside those is packed for one version of Python on x86-64, with Phasepoint itself
and TraceML, a peer.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("msgspec", "duckdb", "isal", "traceml-ai", "psutil")
"""What is packed; nothing that these need in turn, which is there."""

PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 26, 24, 17))
"""pip takes a wheel whose platform is one of these, to the letter."""

MOST_BYTES = 40_000_000

START = """\
# Installs the wheels beside this file into a folder of their own and puts it in front of what is installed.
here="$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)"
site="${PHASEPOINT_SITE:-$(mktemp -d)}"
python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$site" "$here"/*.whl
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PATH="$site/bin:$PATH"
"""


def build_bundle(out: Path, *, python: str = "3.12", packages: Sequence[str] = PACKAGES) -> int:
    """Make the folder anew.

    Args:
        out: the folder.
        python: version that the wheels are for.
        packages: what is packed beside Phasepoint.

    Returns:
        Its size, bytes.

    Raises:
        CalledProcessError: a wheel cannot be built or found.
        ValueError: the folder is larger than `MOST_BYTES`.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(out), str(ROOT)], check=True)
    wanted = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, "--no-deps"]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    limits = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "download", *wanted, *platforms, *limits, "--dest", str(out), *packages], check=True)
    (out / "start.sh").write_text(START)
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > MOST_BYTES:
        raise ValueError(f"{out} holds {size / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB may be carried")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/gpu-bundle"))
    parser.add_argument("--python", default="3.12", help="version that the wheels are for")
    args = parser.parse_args()
    size = build_bundle(args.out, python=args.python)
    names = sorted(path.name for path in args.out.glob("*.whl"))
    print(f"{args.out}: {size / 1e6:.1f} MB for Python {args.python}: {', '.join(names)}")


if __name__ == "__main__":
    main()
