"""Effect of Adam's beta1 on the losses of large batch sizes."""
