// A program; nothing to import.
