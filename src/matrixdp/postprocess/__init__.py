"""What may be done with a release for free."""
