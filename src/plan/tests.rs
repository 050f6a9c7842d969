//! Plans as planners write them.
