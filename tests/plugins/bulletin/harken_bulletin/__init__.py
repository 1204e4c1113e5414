"""A folder of notes as a source of Harken: each file that appears is a message, and an answer is a file beside it."""
