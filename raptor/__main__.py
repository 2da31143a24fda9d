"""`python -m raptor`: the same door as the command `raptor`."""

from raptor.cli.main import main

if __name__ == "__main__":
    main(prog_name="raptor")
