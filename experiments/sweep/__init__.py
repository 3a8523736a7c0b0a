"""A custom sweep: any axes over one setup."""
