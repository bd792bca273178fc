"""Spans of distributed tracing: Jaeger and OpenTelemetry."""
