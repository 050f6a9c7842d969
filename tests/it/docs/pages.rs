//! What the pages are: short where they must be, linked, and with the program's own pictures.
