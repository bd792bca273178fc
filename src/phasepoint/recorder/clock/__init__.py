"""What is measured of every step and beside it: times, memory, collections, values, and what measuring cost."""
