//! The verbs of fleet upgrades: planning and running an update run as a pure state machine.
