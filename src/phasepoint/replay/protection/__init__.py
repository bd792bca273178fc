"""What keeps a replay from changing what it replays."""
