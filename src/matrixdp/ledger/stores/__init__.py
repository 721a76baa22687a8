"""Where the rows of a ledger are kept: one interface, a module for each kind of database."""
