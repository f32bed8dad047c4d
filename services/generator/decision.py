"""Which way a question is answered: abstain, citations, or a written answer.

Pure: no client, no clock.
"""
