"""`python -m translate` is the same as `translate`."""

from translate.cli.app import main

if __name__ == "__main__":
    main()
