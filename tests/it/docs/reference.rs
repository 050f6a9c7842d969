//! What the reference lists is what the program has.
