"""Two runs held against each other: which op is which, what changed, and whether it is more than noise."""
