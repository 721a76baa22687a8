"""The commands of the program: a module for each, or a folder where one is not enough."""
