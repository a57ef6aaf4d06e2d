//! HTTP: the ARM routes, health endpoints and what guards them.
