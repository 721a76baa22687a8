"""Queries: from records to a value whose change by one record is known."""
