"""A function that does nothing, in a module that is light to import, as whatever spawns a process for it has to."""


def swallow(data: str) -> None:
    pass
