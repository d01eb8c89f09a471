"""python -m scaseg.cli: the same as scaseg."""

from scaseg.cli import main

if __name__ == "__main__":
    main()
