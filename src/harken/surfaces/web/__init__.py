"""HTTP: health, and the verbs as an API. Loopback, with a token; Host and Origin are checked."""
