"""Webhooks: what other services post, by their own rules of who signed it and what it means.

One door for each source. `presets/` knows the services, `signing.py` who signed, `preset.py` how to look into what
came without being hurt by it, `source.py` the order of it all.
"""
