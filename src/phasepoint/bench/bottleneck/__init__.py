"""What holds a network back on a device, what would relieve it, and what that should win."""
