"""Who is here now, and what their events prove. Only this package changes a session."""
