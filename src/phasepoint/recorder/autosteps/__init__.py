"""Recording without a line of code: where the frameworks tell of training, and which of that is a step.

Several sources may tell of the same training. Each names its evidence (`evidence.py`); the strongest one leads the
recording (`late_recording.py`), the others are silent. A new source is one file and one row of `start.SOURCES`.
"""
