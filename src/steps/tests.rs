//! Tests of the steps.
