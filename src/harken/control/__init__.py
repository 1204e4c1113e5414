"""The daemon from outside: reaching it over its socket, starting it, finding its process."""
