"""Tables, pages and figures of both experiments."""
