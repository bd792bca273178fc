"""A real training job with planted events, so that a first look at Phasepoint can be held against the truth."""
