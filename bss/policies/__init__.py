"""From a law, or from measurements, to a batch schedule."""
