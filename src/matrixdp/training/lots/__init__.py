"""Lots: drawn by coins, read, divided into batches, clipped and added up."""
