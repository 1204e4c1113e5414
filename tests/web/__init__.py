"""The page, the stream of events and who may use them."""
