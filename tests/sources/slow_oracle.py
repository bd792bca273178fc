"""What a list of intervals covers, counted the slow way: in Python integers, straight from a file."""


def busy_ns(intervals):
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total
