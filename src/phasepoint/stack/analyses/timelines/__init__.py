"""Analyses of what happened when: idle time, launches, collectives, memory, the critical path."""
