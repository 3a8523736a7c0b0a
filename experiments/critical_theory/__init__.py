"""Critical batches of SGD on least squares, exactly."""
