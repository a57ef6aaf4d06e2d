//! A cloud in a box: simulated AKS clusters behind the real AKS ARM API.
