"""Keys, the contexts they are bound to, and the streams of random words derived from them."""
