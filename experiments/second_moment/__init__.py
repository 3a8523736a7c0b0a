"""What decides the best batch: the second moment, the rate or the ending."""
