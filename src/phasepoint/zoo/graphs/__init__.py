"""ONNX graphs: those that installed packages ship, and any file; what they take and what they hold."""
