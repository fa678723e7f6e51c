"""Run the command line, as the command `textevolve` does: `python -m textevolve`."""

from textevolve.cli import main

if __name__ == "__main__":
    main()
