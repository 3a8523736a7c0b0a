"""Steps against batch: critical batch sizes, their laws, other definitions."""
