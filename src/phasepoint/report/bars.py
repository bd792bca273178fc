"""Shares as bars of block characters, an eighth of a character fine."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def share_bar(share: float, width: int) -> str:
    """A bar of at most `width` characters; what is above 0 shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
