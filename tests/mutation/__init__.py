"""Mutation testing: break the code in one place after another, and see whether a test turns red.

`make mutate`, or `python -m tests.mutation --minutes M --seed S --report FILE [--module NAME]`.
"""
