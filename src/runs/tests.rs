//! Ids, values, globs and outlines, on workflows of a few lines.
