"""What is known of a run by compiling it from shapes alone."""
