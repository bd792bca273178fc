"""Rules of the whole run: checkpoints, compilation, evaluation, drift, odd steps, what was seen."""
