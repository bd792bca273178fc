"""Commands that make a run or change it."""
