"""What people install: the package that is built, the container's steps, and what a release is held to."""
