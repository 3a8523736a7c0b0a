"""Steps against batch: critical batch sizes, their and their laws."""
