"""`python -m phasepoint`: the same as the `phasepoint` command."""

from phasepoint.cli.main import main

if __name__ == "__main__":
    main()
