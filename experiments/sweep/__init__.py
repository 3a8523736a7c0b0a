"""A sweep of one's own: any axes over one set-up."""
