"""`python -m textevolve` is the command `textevolve`."""

from textevolve.cli import main

if __name__ == "__main__":
    main()
