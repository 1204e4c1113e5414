"""What leaves the store by itself: replies to their sources, hints to connected sessions."""
