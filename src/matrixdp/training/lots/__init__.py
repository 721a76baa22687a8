"""Lots: drawn at random, read, divided into batches, clipped and added up."""
