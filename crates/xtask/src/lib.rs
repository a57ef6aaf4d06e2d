//! Checks of the repository itself, run as tests.
