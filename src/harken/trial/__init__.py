"""Trials: a real agent host, run for real, with only its model replaced by one of ours on this machine.

What would reach the model is then on our wire, and no model call is paid for. Used by the tests of the hosts and by
the verbs that look whether messages arrive. It knows nothing of Harken's daemon: what is sent, and what should have
arrived, is decided above.
"""
