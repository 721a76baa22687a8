"""From the files of the authors to the form that is read: no code in a file is ever run."""
