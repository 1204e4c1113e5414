"""Programs elsewhere, which come to the public listener with tokens."""
