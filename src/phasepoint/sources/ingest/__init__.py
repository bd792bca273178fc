"""From files to a run: which format a file is in, captures converted, traces of other profilers imported."""
