//! Whether a run is what its log says.
