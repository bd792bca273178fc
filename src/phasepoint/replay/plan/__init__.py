"""From a phase to the checkpoint, the steps and the price of replaying it."""
