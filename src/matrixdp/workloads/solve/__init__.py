"""The search for strategies on one attribute or a written-out histogram, with proven bounds."""
