import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "cli"))  # made_run.py
