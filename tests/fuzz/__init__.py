"""Random and damaged inputs for whatever reads what others wrote: only documented errors, in bounded time and memory.

`make fuzz`, or `python -m tests.fuzz --minutes M --seed S --report FILE [--target NAME]`.
"""
