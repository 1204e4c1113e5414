"""What other machines reach: a TLS listener, the gate that checks tokens, and JWTs of an issuer."""
