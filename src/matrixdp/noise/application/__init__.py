"""Adding noise to arrays: whole or in parts, by one thread or several."""
