"""What entering a recording may import: everything it imports is paid from the job's budget."""

import subprocess
import sys

DEAR = ("numba", "duckdb", "sklearn", "ruptures", "pandas", "pyarrow.compute", "phasepoint.phases")

JOB = """
import sys
from phasepoint.recorder import record
with record(sys.argv[1], framework=None) as run:
    for _ in run.steps(range(3)):
        pass
print("\\n".join(sys.modules))
"""


def test_a_recording_imports_nothing_dear(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "run")], capture_output=True, text=True, check=True, timeout=120
    )
    found = set(done.stdout.split())
    assert "phasepoint.store.writer" in found
    assert not [name for name in DEAR if name in found]
