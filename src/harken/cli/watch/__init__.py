"""The verb `watch`: what happens, as it happens, on a terminal."""
