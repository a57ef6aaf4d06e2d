//! What auto-upgrade profiles make, and why they make nothing (`behaviour.md` A9, D1, D2, E2); and campaigns.

mod campaigns;
mod images;
mod versions;
mod world;
mod year;
