"""The page in a real browser: Chromium without a screen, a real daemon, and sign-in by a real link."""
