"""One run as a user trains it: corpus, model, WSD and a batch schedule, its curve."""
