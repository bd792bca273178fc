"""The step clock of a run: steps of all hosts in order, and where the wall time of every session went."""
