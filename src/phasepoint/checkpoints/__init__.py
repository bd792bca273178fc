"""What lies in a checkpoint, by the format of the framework that wrote it; nothing is unpickled."""
