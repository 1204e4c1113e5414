"""The daemon as others meet it: who may connect, what hostile clients can do, how it starts and stops."""
