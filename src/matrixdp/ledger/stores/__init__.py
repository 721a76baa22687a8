"""Databases for the rows of a ledger: one interface, a module for each kind."""
