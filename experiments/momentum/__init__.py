"""What decides the large batch: Adam's beta1."""
