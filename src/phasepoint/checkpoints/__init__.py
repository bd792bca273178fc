"""What lies in a checkpoint, by the format of the framework that wrote it; nothing in it is run."""
