"""The compiled loops under the union of many intervals: a natural merge sort that joins as it goes.

Tracks give few sorted runs, so there are few passes; what touches within a run is one before the first merge.
"""

from phasepoint.core.compiled import compiled

# Compiled: takes and returns arrays, and so carries no annotations.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, PLR0917


@compiled()
def join_runs(start, end, where, kept_start, kept_end, begin):
    """Number of runs with rising starts, joined within, of the chosen intervals; -1 where one ends before it starts.

    `begin[k]` is where run k begins. The caller allocates: NumPy asks for huge pages, compiled code does not.
    """
    begin[0] = 0
    size = n_runs = 0
    for i in range(len(start)):
        if end[i] < start[i]:
            return -1
        if end[i] == start[i] or (len(where) and not where[i]):
            continue
        rises = size > 0 and start[i] >= kept_start[size - 1]
        if rises and start[i] <= kept_end[size - 1]:
            kept_end[size - 1] = max(kept_end[size - 1], end[i])
            continue
        if not rises:
            begin[n_runs] = size
            n_runs += 1
        kept_start[size], kept_end[size] = start[i], end[i]
        size += 1
    begin[n_runs] = size
    return n_runs


@compiled()
def merge_pairs(start, end, kept_start, kept_end, begin, n_runs):
    """Each two neighbouring runs into one; `begin` is rewritten in place. Returns the number of runs left."""
    out = merged = 0
    for k in range(0, n_runs, 2):
        i, i_end, j_end = begin[k], begin[k + 1], begin[min(k + 2, n_runs)]
        j, low = i_end, out
        begin[merged] = out
        merged += 1
        while i < i_end or j < j_end:
            if j >= j_end or (i < i_end and start[i] <= start[j]):
                s, e = start[i], end[i]
                i += 1
            else:
                s, e = start[j], end[j]
                j += 1
            if out > low and s <= kept_end[out - 1]:
                kept_end[out - 1] = max(kept_end[out - 1], e)
            else:
                kept_start[out], kept_end[out] = s, e
                out += 1
    begin[merged] = out
    return merged
