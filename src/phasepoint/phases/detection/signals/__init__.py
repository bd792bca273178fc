"""What tells phases apart: levels, drifts, cycles and events of the clock; kinds of step by their ops."""
