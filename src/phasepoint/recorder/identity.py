"""What `run.json` says of the job: its command, its frameworks, the commit of its code."""

import re
import sys
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_FRAMEWORKS = ("jax", "jaxlib", "flax", "optax", "torch", "numpy")


def job_command() -> tuple[str, ...]:
    """The job's command line, as the interpreter was started."""
    return tuple(sys.orig_argv)


def framework_versions() -> dict[str, str]:
    """Versions of the frameworks that the job has imported, without importing any."""
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _FRAMEWORKS}
    return {name: str(version) for name, version in versions.items() if version is not None}


def git_commit(folder: Path) -> str | None:
    """Commit of the work tree that holds a folder, read from `.git` without starting git; None where there is none."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return _read_commit(git)
    return None


def job_folder() -> Path:
    """Where the job's script lies, or where it was started."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    return script.resolve().parent if script.is_file() else Path.cwd()


def _read_commit(git: Path) -> str | None:
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head if _COMMIT.fullmatch(head) else None
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.is_file():
            commit = loose.read_text(encoding="ascii").strip()
            return commit if _COMMIT.fullmatch(commit) else None
        packed = (git / "packed-refs").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
